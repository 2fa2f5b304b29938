// SPDX-License-Identifier: GPL-2.0-only
/*
 * Recording: the rings into which the calls of a policy are written, and their reader's interface.
 *
 * A recording belongs to the open file of the control device that began it, and ends with that file
 * at the latest. The recording of a flight recorder (flight.c) has no file. Each CPU writes into a
 * block of its own, and passes a full block to the reader. The reader sees all blocks through
 * mmap(), and returns them by number. core-lib defines the contents of a block (record.rs,
 * policy/trace).
 *
 * Context: process context under the control mutex unless noted.
 */
#include <linux/cpumask.h>
#include <linux/export.h>
#include <linux/fs.h>
#include <linux/jump_label.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/vmalloc.h>
#include <asm/tsc.h>

#include "core.h"
#include "host.h"
#include "place.h"
#include "record.h"

#define RING_BLOCK (64 << 10)	/* policy/trace/src/block.rs */
#define RING_BLOCK_PAGES (RING_BLOCK / PAGE_SIZE)
#define FIRST_BLOCKS 16		/* initial blocks of a ring; it gets more as it fills */

DEFINE_STATIC_KEY_FALSE(baton_recording_key);
u32 baton_recording;	/* the same as the key, for policies in Rust */
EXPORT_SYMBOL_GPL(baton_recording);

/* Called by record.rs when a recorded call begins, and when it has ended. Interrupts off. */
struct baton_ring *baton_ring_enter(const struct baton_recording *recording,
				    struct baton_frame *frame);
notrace struct baton_ring *baton_ring_enter(const struct baton_recording *recording,
					    struct baton_frame *frame)
{
	frame->ring = &recording->rings[smp_processor_id()]->head;
	frame->given = 0;
	return frame->ring;
}

u8 baton_ring_leave(struct baton_frame *frame);
notrace u8 baton_ring_leave(struct baton_frame *frame)
{
	frame->ring = NULL;
	return frame->ended_by;
}

/* Releases the oldest full block for reuse. The ring's lock is held. */
void baton_ring_drop_oldest(struct ring *ring)
{
	ring->free[ring->nr_free++] = ring->filled[ring->first_filled];
	ring->first_filled = (ring->first_filled + 1) % ring->recording->bound;
	ring->nr_filled--;
}

/*
 * Called by record.rs when the block is full, or when there is none. On the ring's CPU, or while
 * all CPUs are held; interrupts off.
 */
void baton_ring_next(struct baton_ring *head)
{
	struct ring *ring = container_of(head, struct ring, head);
	struct baton_recording *recording = ring->recording;
	bool is_flight = baton_is_flight(recording), has_state = recording->about.has_state, is_due;

	raw_spin_lock(&ring->lock);
	if (ring->current_block != BATON_NO_BLOCK)
		ring->filled[(ring->first_filled + ring->nr_filled++) % recording->bound] =
			ring->current_block;
	if (is_flight && !has_state && !ring->nr_free && ring->nr_filled)
		baton_ring_drop_oldest(ring);
	ring->current_block = ring->nr_free ? ring->free[--ring->nr_free] : BATON_NO_BLOCK;
	head->block = ring->current_block == BATON_NO_BLOCK ? NULL
							    : ring->blocks[ring->current_block];
	/*
	 * As many blocks again (3/8 of the ring) may precede the newest checkpoint. The rest is for
	 * the calls made while the next checkpoint is taken.
	 */
	is_due = ring->nr_filled - ring->nr_before >= recording->bound * 3 / 8;
	raw_spin_unlock(&ring->lock);
	if (!head->block)
		ring->is_full = true;
	if (is_flight) {
		if (has_state && (is_due || !head->block))
			baton_flight_wants_checkpoint(recording);
		return;
	}
	if (!head->block && recording->about.how == BATON_RECORD_HOW_LOSSLESS && recording->place) {
		WRITE_ONCE(recording->end, BATON_RECORD_END_FULL);
		baton_core_set_recorder(baton_place_index(recording->place), NULL);
	}
}

u64 baton_host_read(u64 value)
{
	baton_record(read, value);
	return value;
}
EXPORT_SYMBOL_GPL(baton_host_read);

/*
 * Do that many blocks leave enough memory for other users? Otherwise the OOM killer might end any
 * process.
 */
static bool is_room_for(u64 blocks)
{
	return blocks * RING_BLOCK_PAGES <= max(si_mem_available(), 0) / 2;
}

/* Adds blocks to a ring, up to `bound` in all. */
static int grow(struct ring *ring, u32 count, u32 bound)
{
	count = min(count, bound - ring->nr_blocks);
	if (!is_room_for(count))
		return -ENOMEM;
	while (count--) {
		void *block = vmalloc_huge_node(
			RING_BLOCK, GFP_KERNEL | __GFP_ZERO | __GFP_RETRY_MAYFAIL | __GFP_NOWARN,
			cpu_to_node(ring->head.cpu));

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

static struct ring *make_ring(struct baton_recording *recording, u32 cpu, u32 first)
{
	struct ring *ring = kzalloc_node(sizeof(*ring), GFP_KERNEL, cpu_to_node(cpu));

	if (!ring)
		return NULL;
	ring->recording = recording;
	ring->head.cpu = cpu;
	ring->read_block = BATON_NO_BLOCK;
	ring->current_block = BATON_NO_BLOCK;
	raw_spin_lock_init(&ring->lock);
	ring->blocks = kvcalloc(recording->bound, sizeof(*ring->blocks), GFP_KERNEL);
	ring->free = kvcalloc(recording->bound, sizeof(*ring->free), GFP_KERNEL);
	ring->filled = kvcalloc(recording->bound, sizeof(*ring->filled), GFP_KERNEL);
	if (!ring->blocks || !ring->free || !ring->filled ||
	    grow(ring, first, recording->bound - 1)) {
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
	vfree(recording->state.at);
	vfree(recording->newer.at);
	vfree(recording->spare.at);
	kvfree(recording->cpus);
	kvfree(recording);
}

static void free_unused(struct kref *users)
{
	free_recording(container_of(users, struct baton_recording, users));
}

/* Drops a reference. */
void baton_record_put(struct baton_recording *recording)
{
	kref_put(&recording->users, free_unused);
}

static struct baton_recording *make_recording(const struct baton_place *place,
					      const struct baton_record *arg)
{
	const struct baton_policy *ops = &place->active->ops;
	/* A flight recorder has no reader, so its rings never grow. */
	u32 first = arg->how == BATON_RECORD_HOW_FLIGHT ? arg->blocks : FIRST_BLOCKS;
	struct baton_recording *recording;
	int cpu;

	if (!is_room_for((u64)first * num_possible_cpus()))
		return NULL;
	recording = kvzalloc(struct_size(recording, rings, nr_cpu_ids), GFP_KERNEL);
	if (!recording)
		return NULL;
	kref_init(&recording->users);
	recording->about = *arg;
	memcpy(recording->about.name, place->name, sizeof(place->name));
	recording->about.version = ops->version;
	recording->about.stamp_khz = tsc_khz;
	recording->about.has_state = ops->reregister_save != NULL;
	if (ops->reregister_save)
		recording->about.state = ops->state;
	memcpy(recording->about.options, place->options, sizeof(place->options));
	recording->bound = arg->blocks + 1;
	recording->cpus = kvcalloc(nr_cpu_ids, sizeof(*recording->cpus), GFP_KERNEL);
	if (!recording->cpus)
		goto free;
	for_each_possible_cpu(cpu) {
		recording->rings[cpu] = make_ring(recording, cpu, first);
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

/* All CPUs are held and interrupts are off. The policy's new instance knows no task yet. */
static void begin_while_held(struct baton_place *place, void *data)
{
	struct baton_recording *recording = data;
	int cpu;

	for_each_possible_cpu(cpu)
		baton_core_record_begin(&recording->rings[cpu]->head);
	baton_core_set_recorder(baton_place_index(place), recording);
}

struct beginning {
	struct baton_place *place;
	struct baton_recording *recording;
};

static int save_and_begin(void *data)
{
	const struct beginning *beginning = data;
	int err = baton_save(beginning->place, &beginning->recording->state);

	if (!err)
		begin_while_held(beginning->place, beginning->recording);
	return err;
}

/* Begins a recording with the current state of the policy. */
static int begin_with_state(struct baton_place *place, struct baton_recording *recording,
			    char *message)
{
	struct beginning beginning = { .place = place, .recording = recording };
	struct baton_creation creation;
	int err = baton_begin_create(place, &creation, place->options, message);

	if (err)
		return err;
	memcpy(recording->cpus, creation.cpus, array_size(nr_cpu_ids, sizeof(*recording->cpus)));
	baton_end_create(&creation);
	err = baton_save_held(&recording->state, 0, save_and_begin, &beginning);
	if (err == -EFAULT)
		baton_describe_panic(message, BATON_MESSAGE_LEN);
	return err;
}

/* Closes the last block of a ring, with an end mark. No call is recorded in it any more. */
static void end_ring(struct ring *ring)
{
	bool has_end = false;

	/* A second round is needed if the last block has no room for the mark. */
	while (!has_end) {
		if (ring->current_block == BATON_NO_BLOCK) {
			if (!ring->nr_free && grow(ring, 1, ring->recording->bound))
				return;
			ring->current_block = ring->free[--ring->nr_free];
		}
		has_end = baton_core_record_end(&ring->head, ring->blocks[ring->current_block]);
		ring->filled[(ring->first_filled + ring->nr_filled++) % ring->recording->bound] =
			ring->current_block;
		ring->current_block = BATON_NO_BLOCK;
		ring->head.block = NULL;
	}
}

/* Ends the recording of a policy, if there is one. */
void baton_record_end(struct baton_place *place, u32 why)
{
	struct baton_recording *recording = place->recording;
	bool has_failed, is_kept;
	int cpu;

	if (!recording)
		return;
	baton_core_set_recorder(baton_place_index(place), NULL);
	/* Calls run with interrupts off, which is a read-side section. */
	synchronize_rcu();
	/* The last of these calls may have had a fault. */
	has_failed = baton_place_state(place) == BATON_POLICY_STATE_FAULTED;
	is_kept = baton_is_flight(recording) && has_failed;
	place->recording = NULL;
	recording->place = NULL;
	set_recording(false);
	cmpxchg(&recording->end, BATON_RECORD_END_NONE, has_failed ? BATON_RECORD_END_FAULT : why);
	for_each_possible_cpu(cpu)
		end_ring(recording->rings[cpu]);
	if (!baton_is_flight(recording))
		return;
	recording->fault = place->fault.serial;
	if (is_kept)
		swap(place->kept, recording);
	if (recording)
		baton_record_put(recording);
}

/* Is the policy recorded into a file? */
bool baton_is_recorded(const struct baton_place *place)
{
	return place->recording && !baton_is_flight(place->recording);
}

/*
 * Begins to record a running policy. `arg` is complete and checked. A flight recorder of the policy
 * is replaced once the new recording has begun.
 */
int baton_record_begin(struct baton_place *place, struct baton_record *arg)
{
	struct baton_recording *before = place->recording, *recording;
	int err;

	if (baton_place_state(place) != BATON_POLICY_STATE_RUNNING)
		return -ENODEV;
	/* Stamps of different CPUs must agree with the order that locks impose. */
	if (!boot_cpu_has(X86_FEATURE_TSC) || check_tsc_unstable())
		return -EOPNOTSUPP;
	recording = make_recording(place, arg);
	if (!recording)
		return -ENOMEM;
	set_recording(true);
	if (place->active->ops.reregister_save)
		err = begin_with_state(place, recording, arg->message);
	else
		err = baton_renew(place, recording->cpus, begin_while_held, recording,
				  arg->message);
	if (err) {
		set_recording(false);
		baton_record_put(recording);
		return err;
	}
	recording->place = place;
	place->recording = recording;
	if (before) {
		/* Calls that began before run with interrupts off, which is a read-side section. */
		synchronize_rcu();
		set_recording(false);
		before->place = NULL;
		baton_record_put(before);
	}
	return 0;
}

static int begin(struct file *file, struct baton_record *arg)
{
	bool is_fault = arg->how == BATON_RECORD_HOW_FAULT,
	     is_off = arg->how == BATON_RECORD_HOW_FLIGHT && !arg->blocks;
	struct baton_recording *recording;
	struct baton_place *place;
	int err;

	arg->message[0] = 0;
	if (strnlen(arg->name, sizeof(arg->name)) == sizeof(arg->name) ||
	    arg->how > BATON_RECORD_HOW_FAULT ||
	    (!is_fault && !is_off && arg->blocks < FIRST_BLOCKS) || arg->blocks >= BATON_NO_BLOCK ||
	    file->private_data)
		return -EINVAL;
	place = baton_find(arg->name);
	if (!place)
		return -ENOENT;
	switch (arg->how) {
	case BATON_RECORD_HOW_FLIGHT:
		return baton_flight_set(place, arg);
	case BATON_RECORD_HOW_FAULT:
		recording = baton_flight_of_fault(place);
		if (!recording)
			return -ENODATA;
		break;
	default:
		if (baton_is_recorded(place))
			return -EBUSY;
		if (arg->has_state && !place->active->ops.reregister_save)
			return -EPROTOTYPE;
		/* A flight recorder resumes after this recording. */
		err = baton_record_begin(place, arg);
		if (err)
			return err;
		recording = place->recording;
		/* The reader must not wait for the tasks that it records. */
		sched_set_fifo_low(current);
	}
	file->private_data = recording;
	*arg = recording->about;
	arg->state_length = recording->state.length;
	return 0;
}

/* The reader returns a block and gets the next one. */
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
	if (baton_is_flight(recording)) {
		/* Recording of a fault: it no longer changes, and several readers may use it. */
		u32 block = ring->filled[(ring->first_filled + arg->block) % recording->bound];

		arg->block = arg->block < ring->nr_filled ? arg->cpu * recording->bound + block
							  : -1;
		return 0;
	}
	raw_spin_lock_irq(&ring->lock);
	if (ring->read_block != BATON_NO_BLOCK)
		ring->free[ring->nr_free++] = ring->read_block;
	ring->read_block = BATON_NO_BLOCK;
	if (ring->nr_filled) {
		ring->read_block = ring->filled[ring->first_filled % recording->bound];
		ring->first_filled = (ring->first_filled + 1) % recording->bound;
		ring->nr_filled--;
	}
	raw_spin_unlock_irq(&ring->lock);
	arg->block = ring->read_block == BATON_NO_BLOCK
			     ? -1
			     : arg->cpu * recording->bound + ring->read_block;
	/* A ring with less than half of its blocks free grows. */
	if (recording->place && ring->nr_free < ring->nr_blocks / 2)
		grow(ring, ring->nr_blocks, recording->bound - 1);
	return 0;
}

/* A request of the control device. */
int baton_record_request(struct file *file, unsigned int cmd, void *arg)
{
	struct baton_recording *recording = file->private_data;

	if (cmd == BATON_IOC_RECORD)
		return begin(file, arg);
	if (!recording)
		return -ENODATA;
	if (cmd == BATON_IOC_RECORD_TAKE)
		return take(recording, arg);
	if (cmd == BATON_IOC_RECORD_CHECKPOINT)
		return baton_checkpoint(recording, arg);
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

/* Maps all blocks of all rings, by number, read-only. */
int baton_record_mmap(struct file *file, struct vm_area_struct *vma)
{
	/*
	 * private_data is set once. The recording lives as long as the file, to which the mapping
	 * holds a reference.
	 */
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

/* The last reference to the file is gone, however its owner ended. */
void baton_record_release(struct file *file)
{
	struct baton_recording *recording = file->private_data;

	if (!recording)
		return;
	mutex_lock(&baton_control_mutex);
	if (recording->place)
		baton_record_end(recording->place, BATON_RECORD_END_STOPPED);
	baton_record_put(recording);
	baton_flight_go_on();
	mutex_unlock(&baton_control_mutex);
}
