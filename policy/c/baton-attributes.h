/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For applications in C: reads and sets the attributes that a policy gives its threads. See
 * docs/attributes.md. It works by hints (baton-hints.h), so a queue belongs to one thread, which opens, uses
 * and closes it, and must be a task of the policy.
 *
 * On failure the functions return -1 with errno, and `message` says why.
 */
#ifndef BATON_ATTRIBUTES_CLIENT_H
#define BATON_ATTRIBUTES_CLIENT_H

#include "baton-hints.h"

/* How long a policy in an agent may take to reply, ms. One in the kernel replies at once. */
#define BATON_ATTRIBUTES_PATIENCE 1000

struct baton_attribute {
	char name[16];
	int64_t min, max, initial;
	enum baton_attribute_unit unit;
};

struct baton_attributes {
	struct baton_hints hints;
	uint32_t count;
	struct baton_attribute table[BATON_MAX_ATTRIBUTES];
	char message[BATON_MESSAGE_LEN];
};

static inline int baton_attributes_fail(struct baton_attributes *queue, int error,
					const char *why)
{
	snprintf(queue->message, sizeof(queue->message), "%s", why);
	errno = error;
	return -1;
}

/* Sends a request, and reads the reply to it. */
static inline int baton_attributes_ask(struct baton_attributes *queue, const struct baton_hint *ask,
				       struct baton_hint *reply)
{
	int answer;

	/* Replies to requests that were given up. */
	while (baton_hints_receive(&queue->hints, reply))
		;
	answer = baton_hints_send_now(&queue->hints, ask);
	if (answer < 0)
		return baton_attributes_fail(queue, errno, strerror(errno));
	if (answer == BATON_HINT_ANSWER_THREAD)
		return baton_attributes_fail(queue, EPERM,
					     "the thread is no task of the policy, or not permitted");
	if (answer == BATON_HINT_ANSWER_NOT_MEMBER)
		return baton_attributes_fail(queue, ESRCH, "this thread is no task of the policy");
	if (answer != BATON_HINT_ANSWER_TAKEN)
		return baton_attributes_fail(queue, EINVAL, "the policy did not take the request");
	if (baton_hints_wait(&queue->hints, reply, BATON_ATTRIBUTES_PATIENCE) != 1)
		return baton_attributes_fail(queue, ETIMEDOUT, "the policy did not reply");
	if (reply->tag != BATON_ATTRIBUTE_TAG_SET)
		return reply->tag == ask->tag ?
			       0 :
			       baton_attributes_fail(queue, EPROTO, "the reply is to something else");
	switch (reply->words[0]) {
	case BATON_ATTRIBUTE_ANSWER_SET:
		return 0;
	case BATON_ATTRIBUTE_ANSWER_NOT_YET:
		return baton_attributes_fail(queue, EAGAIN,
					     "the policy does not know the thread yet");
	case BATON_ATTRIBUTE_ANSWER_RANGE:
		return baton_attributes_fail(queue, ERANGE, "a value is out of its range");
	default:
		/* The reason, with its NUL. */
		return baton_attributes_fail(queue, EINVAL, (const char *)&reply->words[1]);
	}
}

static inline void baton_attributes_close(struct baton_attributes *queue)
{
	baton_hints_close(&queue->hints);
}

/* Opens the calling thread's queue, and reads what attributes there are. */
static inline int baton_attributes_open(struct baton_attributes *queue, const char *policy)
{
	struct baton_hint ask = { .tag = BATON_ATTRIBUTE_TAG_DESCRIBE }, reply;
	uint32_t i;
	int saved;

	memset(queue, 0, sizeof(*queue));
	if (baton_hints_open(&queue->hints, policy, "Attributes", 1, "AttributesReply", 1,
			     BATON_HINTS_MIN_ENTRIES)) {
		memcpy(queue->message, queue->hints.message, sizeof(queue->message));
		return -1;
	}
	queue->count = 1;
	for (i = 0; i < queue->count; i++) {
		struct baton_attribute *of = &queue->table[i];

		ask.words[0] = i;
		if (baton_attributes_ask(queue, &ask, &reply)) {
			saved = errno;
			baton_attributes_close(queue);
			errno = saved;
			return -1;
		}
		queue->count = reply.words[0] >> 8 & 0xff;
		if (queue->count > BATON_MAX_ATTRIBUTES)
			queue->count = BATON_MAX_ATTRIBUTES;
		of->unit = (enum baton_attribute_unit)(reply.words[0] >> 16);
		of->min = (int64_t)reply.words[1];
		of->max = (int64_t)reply.words[2];
		of->initial = (int64_t)reply.words[3];
		memcpy(of->name, &reply.words[4], sizeof(of->name));
		of->name[sizeof(of->name) - 1] = 0;
	}
	return 0;
}

/* The number of an attribute. */
static inline int baton_attributes_find(struct baton_attributes *queue, const char *name)
{
	uint32_t i;

	for (i = 0; i < queue->count; i++)
		if (!strcmp(queue->table[i].name, name))
			return (int)i;
	return baton_attributes_fail(queue, ENOENT, "the policy has no attribute of that name");
}

/* Reads all attributes of a thread, `count` of them. `thread` is its id. */
static inline int baton_attributes_get(struct baton_attributes *queue, uint32_t thread,
				       int64_t values[BATON_MAX_ATTRIBUTES])
{
	struct baton_hint ask = { .tag = BATON_ATTRIBUTE_TAG_GET, .thread = thread }, reply;

	if (baton_attributes_ask(queue, &ask, &reply))
		return -1;
	memcpy(values, &reply.words[1], BATON_MAX_ATTRIBUTES * sizeof(*values));
	return 0;
}

/*
 * Sets the attributes of a thread whose bits are set in `which`, all or none. The bit and the place
 * of an attribute are its number.
 */
static inline int baton_attributes_set(struct baton_attributes *queue, uint32_t thread,
				       uint32_t which, const int64_t values[BATON_MAX_ATTRIBUTES])
{
	struct baton_hint ask = { .tag = BATON_ATTRIBUTE_TAG_SET, .thread = thread }, reply;
	int i;

	ask.words[0] = which;
	for (i = 0; i < BATON_MAX_ATTRIBUTES; i++)
		if (which & 1u << i)
			ask.words[1 + i] = (uint64_t)values[i];
	return baton_attributes_ask(queue, &ask, &reply);
}

/* Sets one attribute of a thread. */
static inline int baton_attribute_set(struct baton_attributes *queue, uint32_t thread,
				      const char *name, int64_t value)
{
	int64_t values[BATON_MAX_ATTRIBUTES] = { 0 };
	int number = baton_attributes_find(queue, name);

	if (number < 0)
		return -1;
	values[number] = value;
	return baton_attributes_set(queue, thread, 1u << number, values);
}

#endif
