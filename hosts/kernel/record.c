// SPDX-License-Identifier: GPL-2.0-only
/*
 * Recording: the rings that a policy's calls are written into, and the reader's side of them.
 *
 * A recording belongs to the open file of the control device that began it, and ends with it at the latest. Each CPU writes into a
 * block of its own; when that is full it goes to the reader, who sees all blocks through mmap() and gives them back by number. What is
 * in a block is core-lib's matter (record.rs, policy/trace).
 *
 * Context: process context under the control mutex where not said.
 */
#include <linux/cpumask.h>
#include <linux/export.h>
#include <linux/fs.h>
#include <linux/jump_label.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/stop_machine.h>
#include <linux/vmalloc.h>
#include <asm/tsc.h>

#include "core.h"
#include "host.h"
#include "ioctl.h"
#include "record.h"

#define RING_BLOCK (64 << 10)	/* policy/trace/src/block.rs */
#define RING_BLOCK_PAGES (RING_BLOCK / PAGE_SIZE)
#define FIRST_BLOCKS 16		/* that a ring begins with, and is given more of as it fills */
#define NO_BLOCK U16_MAX
#define STATE_ROOM (1 << 20)	/* bytes that are tried for a state; more, if it says that it needs more */

struct ring {
	struct baton_ring head;
	struct baton_recording *recording;
	raw_spinlock_t lock;	/* guards the rest; its CPU takes it once in a block. Nothing is taken under it. */
	u16 current_block;	/* head.block's number */
	u16 read_block;		/* the one that the reader has */
	u32 nr_blocks;		/* of `blocks`; never fewer */
	u32 nr_free, nr_filled, first_filled;
	u64 lost_blocks;
	void **blocks;		/* `bound` places */
	u16 *free;		/* a stack of numbers */
	u16 *filled;		/* a queue of numbers, `bound` places */
};

struct baton_recording {
	struct baton_place *place;	/* NULL when it has ended */
	u32 bound;			/* blocks that a ring may have, and one for the mark of the end */
	bool lossless;
	u32 end;			/* enum baton_record_end; written by any CPU when a ring is full */
	struct baton_cpu *cpus;		/* as the policy was told */
	void *state;			/* where the recording begins with one */
	size_t state_room;
	u64 state_length;		/* or BATON_ABORTED */
	struct ring *rings[];		/* by CPU */
};

DEFINE_STATIC_KEY_FALSE(baton_recording_key);
u32 baton_recording;	/* as the key, for policies in Rust */
EXPORT_SYMBOL_GPL(baton_recording);

static u32 index_of(const struct baton_place *place)
{
	return place - baton_places;
}

/* From record.rs: a call that is to be recorded begins, and has ended. Interrupts off. */
struct baton_ring *baton_ring_enter(const struct baton_recording *recording, struct baton_frame *frame);
notrace struct baton_ring *baton_ring_enter(const struct baton_recording *recording, struct baton_frame *frame)
{
	frame->ring = &recording->rings[smp_processor_id()]->head;
	return frame->ring;
}

u8 baton_ring_leave(struct baton_frame *frame);
notrace u8 baton_ring_leave(struct baton_frame *frame)
{
	frame->ring = NULL;
	return frame->ended_by;
}

/* From record.rs: the block is full, or there is none. On the ring's CPU, interrupts off. */
void baton_ring_next(struct baton_ring *head);
void baton_ring_next(struct baton_ring *head)
{
	struct ring *ring = container_of(head, struct ring, head);
	struct baton_recording *recording = ring->recording;

	raw_spin_lock(&ring->lock);
	if (ring->current_block != NO_BLOCK)
		ring->filled[(ring->first_filled + ring->nr_filled++) % recording->bound] = ring->current_block;
	ring->current_block = ring->nr_free ? ring->free[--ring->nr_free] : NO_BLOCK;
	head->block = ring->current_block == NO_BLOCK ? NULL : ring->blocks[ring->current_block];
	raw_spin_unlock(&ring->lock);
	if (!head->block && recording->lossless && recording->place) {
		WRITE_ONCE(recording->end, BATON_RECORD_END_FULL);
		baton_core_set_recorder(index_of(recording->place), NULL);
	}
}

void baton_host_read(u64 value)
{
	baton_record(read, value);
}
EXPORT_SYMBOL_GPL(baton_host_read);

/* Gives a ring more blocks, up to `bound` in all. */
static int grow(struct ring *ring, u32 count, u32 bound)
{
	while (count-- && ring->nr_blocks < bound) {
		void *block = vzalloc_node(RING_BLOCK, cpu_to_node(ring->head.cpu));

		if (!block)
			return -ENOMEM;
		raw_spin_lock_irq(&ring->lock);
		ring->free[ring->nr_free++] = ring->nr_blocks;
		WRITE_ONCE(ring->blocks[ring->nr_blocks], block);
		ring->nr_blocks++;
		raw_spin_unlock_irq(&ring->lock);
	}
	return 0;
}

static void free_ring(struct ring *ring)
{
	u32 i;

	if (!ring)
		return;
	for (i = 0; i < ring->nr_blocks; i++)
		vfree(ring->blocks[i]);
	kvfree(ring->blocks);
	kvfree(ring->free);
	kvfree(ring->filled);
	kfree(ring);
}

static struct ring *make_ring(struct baton_recording *recording, u32 cpu)
{
	struct ring *ring = kzalloc_node(sizeof(*ring), GFP_KERNEL, cpu_to_node(cpu));

	if (!ring)
		return NULL;
	ring->recording = recording;
	ring->head.cpu = cpu;
	ring->read_block = NO_BLOCK;
	ring->current_block = NO_BLOCK;
	raw_spin_lock_init(&ring->lock);
	ring->blocks = kvcalloc(recording->bound, sizeof(*ring->blocks), GFP_KERNEL);
	ring->free = kvcalloc(recording->bound, sizeof(*ring->free), GFP_KERNEL);
	ring->filled = kvcalloc(recording->bound, sizeof(*ring->filled), GFP_KERNEL);
	if (!ring->blocks || !ring->free || !ring->filled || grow(ring, FIRST_BLOCKS, recording->bound - 1)) {
		free_ring(ring);
		return NULL;
	}
	ring->current_block = ring->free[--ring->nr_free];
	ring->head.block = ring->blocks[ring->current_block];
	return ring;
}

static void free_recording(struct baton_recording *recording)
{
	int cpu;

	for_each_possible_cpu(cpu)
		free_ring(recording->rings[cpu]);
	vfree(recording->state);
	kvfree(recording->cpus);
	kvfree(recording);
}

static struct baton_recording *make_recording(u32 bound, bool lossless)
{
	struct baton_recording *recording = kvzalloc(struct_size(recording, rings, nr_cpu_ids), GFP_KERNEL);
	int cpu;

	if (!recording)
		return NULL;
	recording->bound = bound + 1;
	recording->lossless = lossless;
	recording->cpus = kvcalloc(nr_cpu_ids, sizeof(*recording->cpus), GFP_KERNEL);
	if (!recording->cpus)
		goto free;
	for_each_possible_cpu(cpu) {
		recording->rings[cpu] = make_ring(recording, cpu);
		if (!recording->rings[cpu])
			goto free;
	}
	return recording;
free:
	free_recording(recording);
	return NULL;
}

static void set_recording(bool on)
{
	if (on)
		static_branch_inc(&baton_recording_key);
	WRITE_ONCE(baton_recording, baton_recording + (on ? 1 : -1));
	if (!on)
		static_branch_dec(&baton_recording_key);
}

/* All CPUs stand still, interrupts are off, and the policy's new instance knows no task yet. */
static void begin_while_held(struct baton_place *place, void *data)
{
	struct baton_recording *recording = data;
	int cpu;

	for_each_possible_cpu(cpu)
		baton_core_record_begin(&recording->rings[cpu]->head);
	baton_core_set_recorder(index_of(place), recording);
}

struct checkpoint {
	struct baton_place *place;
	struct baton_recording *recording;
};

static int save_while_held(void *data)
{
	const struct checkpoint *checkpoint = data;
	struct baton_recording *recording = checkpoint->recording;
	const struct baton_version *version = checkpoint->place->active;
	struct baton_bytes bytes = { .at = recording->state, .length = recording->state_room };

	recording->state_length = baton_make(checkpoint->place, version->ops.reregister_save, version->this, &bytes);
	if (recording->state_length <= recording->state_room)
		begin_while_held(checkpoint->place, recording);
	return 0;
}

/* Begins with the state that the policy has. */
static int begin_with_state(struct baton_place *place, struct baton_recording *recording, char *message)
{
	struct checkpoint checkpoint = { .place = place, .recording = recording };
	struct baton_making making;
	int err = baton_begin_making(place, &making, place->options, message);

	if (err)
		return err;
	memcpy(recording->cpus, making.cpus, array_size(nr_cpu_ids, sizeof(*recording->cpus)));
	baton_end_making(&making);
	recording->state_length = STATE_ROOM;
	do {
		vfree(recording->state);
		recording->state_room = recording->state_length + STATE_ROOM;
		recording->state = vzalloc(recording->state_room);
		if (!recording->state)
			return -ENOMEM;
		stop_machine(save_while_held, &checkpoint, NULL);
		if (recording->state_length == BATON_ABORTED) {
			baton_describe_panic(message, BATON_MESSAGE_LEN);
			return -EFAULT;
		}
	} while (recording->state_length > recording->state_room);
	return 0;
}

/* Closes a ring's last block. No call is recorded in it any more. */
static void end_ring(struct ring *ring)
{
	u16 spare = NO_BLOCK;

	if (ring->current_block == NO_BLOCK) {
		if (!ring->nr_free && grow(ring, 1, ring->recording->bound))
			return;
		spare = ring->free[--ring->nr_free];
	}
	if (!baton_core_record_end(&ring->head, spare == NO_BLOCK ? NULL : ring->blocks[spare])) {
		/* The block has no room for the mark: what is in it counts. */
		baton_ring_next(&ring->head);
		if (!ring->head.block || !baton_core_record_end(&ring->head, NULL))
			return;
	}
	if (spare != NO_BLOCK)
		ring->current_block = spare;
	ring->filled[(ring->first_filled + ring->nr_filled++) % ring->recording->bound] = ring->current_block;
	ring->current_block = NO_BLOCK;
	ring->head.block = NULL;
}

/* Ends the recording of a policy, if there is one. */
void baton_record_end(struct baton_place *place, u32 why)
{
	struct baton_recording *recording = place->recording;
	int cpu;

	if (!recording)
		return;
	baton_core_set_recorder(index_of(place), NULL);
	/* Calls run with interrupts off, which is a read-side section. */
	synchronize_rcu();
	place->recording = NULL;
	recording->place = NULL;
	set_recording(false);
	cmpxchg(&recording->end, BATON_RECORD_END_NONE, why);
	for_each_possible_cpu(cpu)
		end_ring(recording->rings[cpu]);
}

static int begin(struct file *file, struct baton_record *arg)
{
	struct baton_recording *recording;
	struct baton_place *place;
	int err;

	arg->message[0] = 0;
	if (strnlen(arg->name, sizeof(arg->name)) == sizeof(arg->name) || arg->lossless > 1 || arg->blocks < FIRST_BLOCKS ||
	    arg->blocks >= NO_BLOCK || file->private_data)
		return -EINVAL;
	place = baton_find(arg->name);
	if (!place)
		return -ENOENT;
	if (baton_core_state(index_of(place)) != BATON_POLICY_STATE_RUNNING)
		return -ENODEV;
	if (place->recording)
		return -EBUSY;
	/* Stamps of different CPUs must agree as far as a lock orders them. */
	if (!boot_cpu_has(X86_FEATURE_TSC) || check_tsc_unstable())
		return -EOPNOTSUPP;
	recording = make_recording(arg->blocks, arg->lossless);
	if (!recording)
		return -ENOMEM;
	set_recording(true);
	if (place->active->ops.reregister_save)
		err = begin_with_state(place, recording, arg->message);
	else
		err = baton_renew(place, recording->cpus, begin_while_held, recording, arg->message);
	if (err) {
		set_recording(false);
		free_recording(recording);
		return err;
	}
	recording->place = place;
	place->recording = recording;
	file->private_data = recording;
	/* The reader must not wait for those that it reads of. */
	sched_set_fifo_low(current);
	arg->version = place->active->ops.version;
	arg->stamp_khz = tsc_khz;
	arg->state_length = recording->state_length;
	if (recording->state)
		arg->state = place->active->ops.state;
	memcpy(arg->options, place->options, sizeof(arg->options));
	return 0;
}

/* The reader gives a block back and gets the next. */
static int take(const struct baton_recording *recording, struct baton_record_block *arg)
{
	struct ring *ring;

	if (arg->cpu >= nr_cpu_ids || !recording->rings[arg->cpu])
		return -EINVAL;
	ring = recording->rings[arg->cpu];
	arg->topology = recording->cpus[arg->cpu];
	arg->end = READ_ONCE(recording->end);
	if (arg->block < 0)
		return 0;
	raw_spin_lock_irq(&ring->lock);
	if (ring->read_block != NO_BLOCK)
		ring->free[ring->nr_free++] = ring->read_block;
	ring->read_block = NO_BLOCK;
	if (ring->nr_filled) {
		ring->read_block = ring->filled[ring->first_filled % recording->bound];
		ring->first_filled = (ring->first_filled + 1) % recording->bound;
		ring->nr_filled--;
	}
	raw_spin_unlock_irq(&ring->lock);
	arg->block = ring->read_block == NO_BLOCK ? -1 : arg->cpu * recording->bound + ring->read_block;
	/* A ring of which less than half is free grows. */
	if (recording->place && ring->nr_free < ring->nr_blocks / 2)
		grow(ring, ring->nr_blocks, recording->bound - 1);
	return 0;
}

/* A request of the control device's. */
int baton_record_request(struct file *file, unsigned int cmd, void *arg)
{
	struct baton_recording *recording = file->private_data;

	if (cmd == BATON_IOC_RECORD)
		return begin(file, arg);
	if (!recording)
		return -ENODATA;
	if (cmd == BATON_IOC_RECORD_TAKE)
		return take(recording, arg);
	if (recording->place)
		baton_record_end(recording->place, BATON_RECORD_END_STOPPED);
	return 0;
}

static vm_fault_t fault(struct vm_fault *vmf)
{
	const struct baton_recording *recording = vmf->vma->vm_private_data;
	unsigned long number = vmf->pgoff / RING_BLOCK_PAGES;
	const struct ring *ring;
	void *block;

	if (number / recording->bound >= nr_cpu_ids)
		return VM_FAULT_SIGBUS;
	ring = recording->rings[number / recording->bound];
	block = ring ? READ_ONCE(ring->blocks[number % recording->bound]) : NULL;
	if (!block)
		return VM_FAULT_SIGBUS;
	vmf->page = vmalloc_to_page(block + vmf->pgoff % RING_BLOCK_PAGES * PAGE_SIZE);
	get_page(vmf->page);
	return 0;
}

static const struct vm_operations_struct vm_ops = {
	.fault = fault,
};

/* The state that the recording begins with. */
ssize_t baton_record_read(struct file *file, char __user *to, size_t count, loff_t *at)
{
	/* As for mmap(); the state is not changed after the recording has begun. */
	const struct baton_recording *recording = READ_ONCE(file->private_data);

	return recording ? simple_read_from_buffer(to, count, at, recording->state, recording->state_length) : -ENODATA;
}

/* All blocks of all rings, by number, to be read. */
int baton_record_mmap(struct file *file, struct vm_area_struct *vma)
{
	/* Set once, before anyone can know of it; it lives as long as the file, which the mapping holds. */
	struct baton_recording *recording = READ_ONCE(file->private_data);

	if (!recording)
		return -ENODATA;
	if (vma->vm_flags & VM_WRITE)
		return -EPERM;
	vm_flags_mod(vma, VM_DONTEXPAND | VM_DONTDUMP, VM_MAYWRITE);
	vma->vm_private_data = recording;
	vma->vm_ops = &vm_ops;
	return 0;
}

/* The file is closed, by whatever end of its owner. */
void baton_record_release(struct file *file)
{
	struct baton_recording *recording = file->private_data;

	if (!recording)
		return;
	mutex_lock(&baton_control_mutex);
	if (recording->place)
		baton_record_end(recording->place, BATON_RECORD_END_STOPPED);
	mutex_unlock(&baton_control_mutex);
	free_recording(recording);
}
