// SPDX-License-Identifier: GPL-2.0-only
/*
 * The flight recorder of a policy: a recording that belongs to nobody, goes on for ever and keeps the newest, so that what led to a
 * fault can be saved and replayed after it.
 *
 * A replay needs a state to begin with. So the policy's state is saved (reregister_save) whenever a ring has used so many blocks
 * since the last time. The checkpoint before the newest is kept with all that came after it, and what is older is dropped. A policy
 * that cannot save its state begins with a new instance; when its rings are full the oldest blocks are used again, and what is
 * left can be read, and not replayed.
 *
 * A fault ends the calls, and with that freezes the recorder; it is kept until the policy is unloaded or fails again.
 *
 * Context: process context under the control mutex where not said.
 */
#include <linux/irq_work.h>
#include <linux/stop_machine.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#include "core.h"
#include "record.h"

static u32 index_of(const struct baton_place *place)
{
	return place - baton_places;
}

static bool is_running(const struct baton_place *place)
{
	return baton_core_state(index_of(place)) == BATON_POLICY_STATE_RUNNING;
}

/* What was recorded before the newest checkpoint is dropped, or, if the ring was full meanwhile, all. All CPUs stand still. */
static void cut(struct ring *ring, bool all)
{
	u32 drop;

	baton_core_record_cut(&ring->head);
	raw_spin_lock(&ring->lock);
	for (drop = all ? ring->nr_filled : ring->nr_before; drop; drop--)
		baton_ring_drop_oldest(ring);
	ring->nr_before = ring->nr_filled;
	raw_spin_unlock(&ring->lock);
	ring->is_full = false;
	if (!ring->head.block)
		baton_core_record_cut(&ring->head);
}

/* All CPUs stand still, interrupts are off. */
static int checkpoint_while_held(void *data)
{
	struct baton_place *place = data;
	struct baton_recording *recording = place->recording;
	const struct baton_version *version = place->active;
	struct saved *spare = &recording->spare;
	struct baton_bytes bytes = { .at = spare->at, .length = spare->room };
	bool was_full = false;
	int cpu;

	spare->length = 0;
	/* A fault may have been first. */
	if (!is_running(place))
		return 0;
	spare->length = baton_make(place, version->ops.reregister_save, version->this, &bytes);
	if (spare->length > spare->room)
		return 0;
	for_each_possible_cpu(cpu)
		was_full |= recording->rings[cpu]->is_full;
	for_each_possible_cpu(cpu)
		cut(recording->rings[cpu], was_full);
	if (was_full) {
		swap(recording->state, recording->spare);
	} else {
		if (recording->has_newer)
			swap(recording->state, recording->newer);
		swap(recording->newer, recording->spare);
	}
	recording->has_newer = !was_full;
	/* A ring that was cut may have asked for another. */
	WRITE_ONCE(recording->wants_checkpoint, false);
	return 0;
}

/* Makes a checkpoint. False when none can be made. */
static bool checkpoint(struct baton_place *place)
{
	struct baton_recording *recording = place->recording;
	struct saved *spare = &recording->spare;
	u64 length = recording->state.length;

	WRITE_ONCE(recording->wants_checkpoint, false);
	for (;;) {
		if (spare->room < length || !spare->at) {
			vfree(spare->at);
			spare->room = length + BATON_STATE_ROOM;
			spare->at = vzalloc(spare->room);
			if (!spare->at)
				return false;
		}
		stop_machine(checkpoint_while_held, place, NULL);
		/* Made, it is not the spare one any more. */
		length = recording->spare.length;
		if (length == BATON_ABORTED)
			return false;
		if (length <= recording->spare.room)
			return true;
	}
}

static void look(struct work_struct *work)
{
	int i;

	mutex_lock(&baton_control_mutex);
	for (i = 0; i < BATON_MAX_POLICIES; i++) {
		struct baton_place *place = &baton_places[i];

		if (!place->recording || !READ_ONCE(place->recording->wants_checkpoint) || !is_running(place))
			continue;
		if (!checkpoint(place)) {
			pr_notice("baton: policy %s: the flight recorder has ended: its state could not be saved\n", place->name);
			place->flight = 0;
			baton_record_end(place, BATON_RECORD_END_STOPPED);
		}
	}
	mutex_unlock(&baton_control_mutex);
}
static DECLARE_WORK(look_work, look);

static void look_soon(struct irq_work *work)
{
	queue_work(system_highpri_wq, &look_work);
}
static DEFINE_IRQ_WORK(look_irq_work, look_soon);

/* From a ring that has used much since the last checkpoint. Any context, a run-queue lock held as like as not. */
void baton_flight_wants_checkpoint(struct baton_recording *recording)
{
	if (READ_ONCE(recording->wants_checkpoint))
		return;
	WRITE_ONCE(recording->wants_checkpoint, true);
	irq_work_queue(&look_irq_work);
}

static int begin(struct baton_place *place, char *message)
{
	struct baton_record about = { .blocks = place->flight, .how = BATON_RECORD_HOW_FLIGHT };
	int err = baton_record_begin(place, &about);

	memcpy(message, about.message, sizeof(about.message));
	return err;
}

/* Gives a policy a flight recorder of so many blocks for each CPU, or, with 0, takes it away. */
int baton_flight_set(struct baton_place *place, struct baton_record *arg)
{
	int err;

	if (arg->blocks && !is_running(place))
		return -ENODEV;
	if (place->recording && baton_is_flight(place->recording))
		baton_record_end(place, BATON_RECORD_END_STOPPED);
	place->flight = arg->blocks;
	if (!arg->blocks || place->recording)
		return 0;
	err = begin(place, arg->message);
	if (err)
		place->flight = 0;
	return err;
}

/* After whatever may have ended a flight recorder that is wanted: another version came, a recording into a file is over. */
void baton_flight_go_on(void)
{
	char message[BATON_MESSAGE_LEN];
	int i;

	for (i = 0; i < BATON_MAX_POLICIES; i++) {
		struct baton_place *place = &baton_places[i];

		if (!place->active || !place->flight || place->recording || !is_running(place))
			continue;
		if (begin(place, message)) {
			pr_notice("baton: policy %s: the flight recorder could not begin again %s\n", place->name, message);
			place->flight = 0;
		}
	}
}

/* The recording of the last fault; NULL when there is none. Its user must put it. */
struct baton_recording *baton_flight_of_fault(struct baton_place *place)
{
	if (place->recording && baton_is_flight(place->recording) &&
	    baton_core_state(index_of(place)) == BATON_POLICY_STATE_FAULTED)
		baton_record_end(place, BATON_RECORD_END_FAULT);
	/* It may be of an earlier one. */
	if (!place->kept || place->kept->fault != place->fault.serial)
		return NULL;
	kref_get(&place->kept->users);
	return place->kept;
}

/* The policy is stopped for good. */
void baton_flight_forget(struct baton_place *place)
{
	place->flight = 0;
	if (place->kept)
		baton_record_put(place->kept);
	place->kept = NULL;
}

/* No policy is registered. */
void baton_flight_exit(void)
{
	irq_work_sync(&look_irq_work);
	flush_work(&look_work);
}
