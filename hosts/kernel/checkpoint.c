// SPDX-License-Identifier: GPL-2.0-only
/*
 * Checkpoints of a recorded policy: its state is saved between two calls, so that a replay can
 * begin there.
 *
 * Context: process context under the control mutex unless noted.
 */
#include <linux/cpumask.h>
#include <linux/fs.h>
#include <linux/stop_machine.h>
#include <linux/vmalloc.h>
#include <asm/msr.h>

#include "core.h"
#include "place.h"
#include "record.h"

/*
 * Has the policy save its state; -ENOSPC if there is not enough room. All CPUs are held, interrupts
 * are off. Later calls have later stamps than the state.
 */
int baton_save(struct baton_place *place, struct saved *to)
{
	const struct baton_version *version = place->active;
	struct baton_bytes bytes = { .at = to->at, .length = to->room };

	/* A fault may have stopped the policy first. */
	if (baton_place_state(place) != BATON_POLICY_STATE_RUNNING)
		return -ENODEV;
	to->length = baton_make(place, version->ops.reregister_save, version->this, &bytes);
	to->stamp = rdtsc_ordered();
	if (to->length == BATON_ABORTED)
		return -EFAULT;
	return to->length <= to->room ? 0 : -ENOSPC;
}

/*
 * Calls `held`, which saves a state of about `length` bytes to `to`, while all CPUs are held.
 * Repeats that with more room if the state does not fit.
 */
int baton_save_held(struct saved *to, u64 length, int (*held)(void *), void *data)
{
	int err;

	do {
		if (!to->at || to->room < length) {
			vfree(to->at);
			to->room = length + BATON_STATE_ROOM;
			to->at = __vmalloc(to->room, GFP_KERNEL | __GFP_ZERO | __GFP_RETRY_MAYFAIL |
							     __GFP_NOWARN);
			if (!to->at)
				return -ENOMEM;
		}
		err = stop_machine(held, data, NULL);
		length = to->length;
	} while (err == -ENOSPC);
	return err;
}

static int checkpoint_while_held(void *data)
{
	struct baton_recording *recording = data;
	int cpu, err;

	/* One block for the mark of lost events, if no block is open, and one for later calls. */
	for_each_possible_cpu(cpu)
		if (recording->rings[cpu]->nr_free < 2)
			return -EAGAIN;
	err = baton_save(recording->place, &recording->spare);
	if (err)
		return err;
	for_each_possible_cpu(cpu)
		baton_core_record_cut(&recording->rings[cpu]->head, recording->spare.stamp, false);
	swap(recording->state, recording->spare);
	return 0;
}

/* A request of the control device: see struct baton_record_checkpoint. */
int baton_checkpoint(struct baton_recording *recording, struct baton_record_checkpoint *arg)
{
	const struct saved *state = &recording->state;
	int err;

	memset(arg, 0, sizeof(*arg));
	if (baton_is_flight(recording)) {
		if (!recording->has_newer)
			return -ENODATA;
		arg->at = state->length;
		state = &recording->newer;
	} else {
		if (!recording->place || !recording->about.has_state)
			return -ENODATA;
		err = baton_save_held(&recording->spare, state->length, checkpoint_while_held,
				      recording);
		if (err)
			return err;
	}
	arg->stamp = state->stamp;
	arg->length = state->length;
	return 0;
}

/*
 * Reads the state that was saved last. For the recording of a fault, reads both states that are
 * kept, one after the other.
 */
ssize_t baton_record_read(struct file *file, char __user *to, size_t count, loff_t *at)
{
	const struct baton_recording *recording;
	const struct saved *state;
	loff_t begin = 0, within;
	ssize_t length = -ENODATA;

	mutex_lock(&baton_control_mutex);
	recording = file->private_data;
	if (recording) {
		state = &recording->state;
		if (recording->has_newer && *at >= state->length) {
			begin = state->length;
			state = &recording->newer;
		}
		within = *at - begin;
		length = simple_read_from_buffer(to, count, &within, state->at, state->length);
		*at = begin + within;
	}
	mutex_unlock(&baton_control_mutex);
	return length;
}
