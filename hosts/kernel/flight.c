// SPDX-License-Identifier: GPL-2.0-only
/*
 * The flight recorder of a policy: a recording without a file. It continues indefinitely and keeps
 * the newest calls, so that the calls that led to a fault can be saved and replayed afterwards.
 *
 * A replay begins with a state. So the state of the policy is saved (reregister_save) whenever a
 * ring has filled a certain number of blocks since the last checkpoint. The checkpoint before the
 * newest is kept, with all calls after it. Older ones are dropped. A policy that cannot save its
 * state begins with a new instance. When its rings are full, the oldest blocks are reused. What
 * remains can be read, but not replayed.
 *
 * A fault ends the calls and so freezes the recorder. The recording is kept until the policy is
 * unloaded or has another fault.
 *
 * Context: process context under the control mutex unless noted.
 */
#include <linux/kthread.h>
#include <linux/sched.h>

#include "core.h"
#include "interrupt.h"
#include "place.h"
#include "record.h"

static bool is_running(const struct baton_place *place)
{
	return baton_place_state(place) == BATON_POLICY_STATE_RUNNING;
}

/*
 * Drops what was recorded before the newest checkpoint, or all of it if a ring was full since then.
 * All CPUs are held.
 */
static void cut(struct ring *ring, u64 stamp, bool all)
{
	u32 drop;

	baton_core_record_cut(&ring->head, stamp, true);
	raw_spin_lock(&ring->lock);
	for (drop = all ? ring->nr_filled : ring->nr_before; drop; drop--)
		baton_ring_drop_oldest(ring);
	ring->nr_before = ring->nr_filled;
	raw_spin_unlock(&ring->lock);
	ring->is_full = false;
	if (!ring->head.block)
		baton_core_record_cut(&ring->head, stamp, true);
}

/* All CPUs are held, interrupts are off. */
static int checkpoint_while_held(void *data)
{
	struct baton_place *place = data;
	struct baton_recording *recording = place->recording;
	bool was_full = false;
	int cpu, err;

	err = baton_save(place, &recording->spare);
	if (err)
		return err;
	for_each_possible_cpu(cpu)
		was_full |= recording->rings[cpu]->is_full;
	for_each_possible_cpu(cpu)
		cut(recording->rings[cpu], recording->spare.stamp, was_full);
	if (was_full) {
		swap(recording->state, recording->spare);
	} else {
		if (recording->has_newer)
			swap(recording->state, recording->newer);
		swap(recording->newer, recording->spare);
	}
	recording->has_newer = !was_full;
	/* Cutting a ring may have requested another checkpoint. */
	WRITE_ONCE(recording->wants_checkpoint, false);
	return 0;
}

/* Makes a checkpoint. False if that is impossible. */
static bool checkpoint(struct baton_place *place)
{
	struct baton_recording *recording = place->recording;
	int err;

	WRITE_ONCE(recording->wants_checkpoint, false);
	err = baton_save_held(&recording->spare, recording->state.length, checkpoint_while_held,
			      place);
	/* If the policy has stopped meanwhile, the recording stays as it is. */
	return !err || err == -ENODEV;
}

static void look(struct kthread_work *work)
{
	int i;

	mutex_lock(&baton_control_mutex);
	for (i = 0; i < BATON_MAX_POLICIES; i++) {
		struct baton_place *place = &baton_places[i];

		if (!place->recording || !READ_ONCE(place->recording->wants_checkpoint) ||
		    !is_running(place))
			continue;
		if (!checkpoint(place)) {
			pr_notice(
				"baton: policy %s: the flight recorder has ended: its state could not be saved\n",
				place->name);
			place->flight = 0;
			baton_record_end(place, BATON_RECORD_END_STOPPED);
		}
	}
	mutex_unlock(&baton_control_mutex);
}
static DEFINE_KTHREAD_WORK(look_work, look);
/*
 * A separate real-time thread, as a policy may have all normal tasks and this must not wait for it.
 */
static struct kthread_worker *looker;

static void look_soon(struct irq_work *work)
{
	kthread_queue_work(looker, &look_work);
}
static struct baton_interrupt look_interrupt = BATON_INTERRUPT_INIT(look_interrupt, look_soon);

/*
 * Requests a checkpoint, for a ring that has filled enough blocks since the last one. Any context;
 * a run-queue lock is often held.
 */
void baton_flight_wants_checkpoint(struct baton_recording *recording)
{
	if (READ_ONCE(recording->wants_checkpoint))
		return;
	WRITE_ONCE(recording->wants_checkpoint, true);
	baton_interrupt(&look_interrupt);
}

static int begin(struct baton_place *place, u32 blocks, char *message)
{
	struct baton_record about = { .blocks = blocks, .how = BATON_RECORD_HOW_FLIGHT };
	int err = baton_record_begin(place, &about);

	memcpy(message, about.message, sizeof(about.message));
	if (!err)
		place->flight = blocks;
	return err;
}

/*
 * Gives a policy a flight recorder of `arg->blocks` blocks for each CPU, or removes it if that is
 * 0. An existing one continues until the new one has begun.
 */
int baton_flight_set(struct baton_place *place, struct baton_record *arg)
{
	if (!arg->blocks && place->recording && baton_is_flight(place->recording))
		baton_record_end(place, BATON_RECORD_END_STOPPED);
	/* The flight recorder begins after the recording into a file. */
	if (!arg->blocks || baton_is_recorded(place)) {
		place->flight = arg->blocks;
		return 0;
	}
	return is_running(place) ? begin(place, arg->blocks, arg->message) : -ENODEV;
}

/*
 * Restarts flight recorders. Called after anything that may have ended one that is wanted, such as
 * a change of version or the end of a recording into a file.
 */
void baton_flight_go_on(void)
{
	char message[BATON_MESSAGE_LEN];
	int i;

	for (i = 0; i < BATON_MAX_POLICIES; i++) {
		struct baton_place *place = &baton_places[i];

		if (!place->active || !place->flight || place->recording || !is_running(place))
			continue;
		if (begin(place, place->flight, message)) {
			pr_notice(
				"baton: policy %s: the flight recorder could not begin again %s\n",
				place->name, message);
			place->flight = 0;
		}
	}
}

/* Has a fault frozen a recorder that was not ended yet? */
static bool is_frozen(const struct baton_place *place)
{
	return place->recording && baton_is_flight(place->recording) &&
	       baton_place_state(place) == BATON_POLICY_STATE_FAULTED;
}

/* Is there a recording of the last fault? The kept recording may be of an earlier one. */
bool baton_flight_has_fault(const struct baton_place *place)
{
	return is_frozen(place) || (place->kept && place->kept->fault == place->fault.serial);
}

/* The recording of the last fault, or NULL. The caller must put it. */
struct baton_recording *baton_flight_of_fault(struct baton_place *place)
{
	if (!baton_flight_has_fault(place))
		return NULL;
	if (is_frozen(place))
		baton_record_end(place, BATON_RECORD_END_FAULT);
	kref_get(&place->kept->users);
	return place->kept;
}

/*
 * The policy is stopped and will not run again: removes its flight recorder and the kept recording.
 */
void baton_flight_forget(struct baton_place *place)
{
	place->flight = 0;
	if (place->kept)
		baton_record_put(place->kept);
	place->kept = NULL;
}

/* Before a policy can be registered. */
int baton_flight_init(void)
{
	looker = kthread_run_worker(0, "baton_flight");
	if (IS_ERR(looker))
		return PTR_ERR(looker);
	sched_set_fifo_low(looker->task);
	return 0;
}

/* No policy is registered. */
void baton_flight_exit(void)
{
	baton_interrupt_sync(&look_interrupt);
	kthread_destroy_worker(looker);
}
