/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Attributes of threads, and other hints of applications. Included by events.h.
 *
 * A request is a hint, and the answer is a reply (policy/message/src/attributes.rs). So the host has
 * checked who sends it, and that it names a thread of this policy which the sender may name. What it
 * says is checked here.
 */
#ifndef BATON_EVENTS_ATTRIBUTES_H
#define BATON_EVENTS_ATTRIBUTES_H

/* Letters of an attribute's name, with the NUL, and of a reason. Each fits into a reply. */
#define BATON_ATTRIBUTE_NAME 16
#define BATON_ATTRIBUTE_REASON 40

static __always_inline u32 baton_nr_attributes(const struct events *ev)
{
	u32 count = 0;

	while (count < BATON_MAX_ATTRIBUTES && ev->attributes[count].name)
		count++;
	return count;
}

static __always_inline s64 *baton_attributes(const struct events *ev, struct thread *thread)
{
	return (s64 *)((char *)thread + ev->attributes_at);
}

/* What is wrong with what the policy says of its hints and attributes, or NULL. */
static inline const char *baton_judge_attributes(const struct events *ev)
{
	u32 i, count = baton_nr_attributes(ev);

	if (ev->hint && count)
		return "a policy has attributes, or hints of its own, but not both";
	if (!ev->hint != !ev->hint_type.name[0])
		return "a policy that has hints has a handler `hint`, and a type with a name";
	if (!count)
		return ev->attributes_size ? "the policy describes no attribute" : NULL;
	if (ev->attributes_size != count * sizeof(s64))
		return "the attributes are not as many as are described: each is an s64";
	if (ev->attributes_at < sizeof(struct thread) || ev->attributes_at % sizeof(s64) ||
	    ev->thread_size < ev->attributes_size ||
	    ev->attributes_at > ev->thread_size - ev->attributes_size)
		return "the attributes are no member of the policy's type of threads";
	for (i = 0; i < count; i++) {
		const struct attribute *of = &ev->attributes[i];

		if (!of->name[0] || strnlen(of->name, BATON_ATTRIBUTE_NAME) == BATON_ATTRIBUTE_NAME)
			return "the name of an attribute has 1 to 15 letters";
		if (of->min > of->initial || of->initial > of->max)
			return "the initial value of an attribute is not in its range";
	}
	return NULL;
}

/* Reads the attributes of a thread. Its core's lock is held, if it has a core. */
static inline void baton_get_attributes(const struct events *ev, struct baton_call *call,
					struct thread *thread, s64 *to)
{
	call->thread = thread;
	if (ev->getparam)
		BATON_HANDLE(getparam, thread, to);
	else
		memcpy(to, baton_attributes(ev, thread), ev->attributes_size);
}

/*
 * Sets those attributes of a thread whose bits are set in `which`. Its core's lock is held. Words 1
 * and later of the answer are the number of an attribute that is out of range, or the reason why
 * the policy refuses.
 */
static inline void baton_set_attributes(const struct events *ev, struct baton_call *call,
					struct thread *thread, u64 which, const u64 *to,
					u64 *answer)
{
	s64 values[BATON_MAX_ATTRIBUTES];
	const char *why = NULL;
	u32 i;

	baton_get_attributes(ev, call, thread, values);
	for (i = 0; i < baton_nr_attributes(ev); i++) {
		const struct attribute *of = &ev->attributes[i];

		if (!(which & (1 << i)))
			continue;
		values[i] = (s64)to[i];
		if (values[i] < of->min || values[i] > of->max) {
			answer[0] = BATON_ATTRIBUTE_ANSWER_RANGE;
			answer[1] = i;
			return;
		}
	}
	call->handler = BATON_IN_checkparam;
	if (ev->checkparam)
		why = ev->checkparam(call->policy, thread, values);
	if (why) {
		answer[0] = BATON_ATTRIBUTE_ANSWER_REFUSED;
		strscpy((char *)&answer[1], why, BATON_ATTRIBUTE_REASON);
		return;
	}
	if (ev->setparam)
		BATON_HANDLE(setparam, thread, values);
	else
		memcpy(baton_attributes(ev, thread), values, ev->attributes_size);
	BATON_HANDLE(attr_changed, thread);
}

/* Is this a request about attributes, in its only form? */
static inline bool baton_is_request(const struct events *ev, const struct baton_hint *hint)
{
	u32 i, used = 0, count = baton_nr_attributes(ev);

	switch (hint->tag) {
	case BATON_ATTRIBUTE_TAG_DESCRIBE:
		if (hint->thread || hint->words[0] >= count)
			return false;
		used = 1;
		break;
	case BATON_ATTRIBUTE_TAG_GET:
		if (!hint->thread)
			return false;
		break;
	case BATON_ATTRIBUTE_TAG_SET:
		if (!hint->thread || !hint->words[0] || hint->words[0] >> count)
			return false;
		used = 1 + count;
		break;
	default:
		return false;
	}
	for (i = used; i < BATON_HINT_WORDS; i++)
		if (hint->words[i])
			return false;
	return true;
}

/* Returns 1 for what is no request of that type. */
static noinline u64 baton_events_attributes(const struct events *ev, struct policy *policy,
					    struct baton_ctx *ctx, const struct baton_task *from,
					    const struct baton_hint *hint)
{
	u64 reply[BATON_HINT_WORDS] = {};
	const struct attribute *of;
	struct thread *thread;
	struct core *core;
	BATON_BEGIN(policy, ctx, checkparam);

	if (!baton_is_request(ev, hint))
		return 1;
	if (hint->tag == BATON_ATTRIBUTE_TAG_DESCRIBE) {
		of = &ev->attributes[hint->words[0]];
		reply[0] = hint->words[0] | baton_nr_attributes(ev) << 8 | of->unit << 16;
		reply[1] = of->min;
		reply[2] = of->max;
		reply[3] = of->initial;
		strscpy((char *)&reply[4], of->name, BATON_ATTRIBUTE_NAME);
		baton_host_reply(from->slot, hint->tag, reply);
		return 0;
	}
	thread = thread_at(policy, hint->thread - 1);
	/* Two requests do not lose each other's values, though a thread may change its core. */
	baton_host_lock(&policy->attributes_lock);
	core = baton_lock_home(thread);
	if (!core || baton_read(thread->state) <= THREAD_NEW) {
		reply[0] = BATON_ATTRIBUTE_ANSWER_NOT_YET;
		/* An answer to either request. */
		baton_host_reply(from->slot, BATON_ATTRIBUTE_TAG_SET, reply);
	} else if (hint->tag == BATON_ATTRIBUTE_TAG_GET) {
		reply[0] = baton_nr_attributes(ev);
		baton_get_attributes(ev, call, thread, (s64 *)&reply[1]);
		baton_host_reply(from->slot, hint->tag, reply);
	} else {
		baton_set_attributes(ev, call, thread, hint->words[0], &hint->words[1], reply);
		baton_host_reply(from->slot, hint->tag, reply);
	}
	if (core)
		unlock_core(core);
	baton_host_unlock(&policy->attributes_lock);
	baton_end(call);
	return 0;
}

/* A hint of the policy's own type. */
static inline u64 baton_events_hint(const struct events *ev, struct policy *policy,
				    struct baton_ctx *ctx, const struct baton_task *from,
				    const struct baton_hint *hint)
{
	struct thread *sender = thread_at(policy, from->slot);
	bool is_taken;
	BATON_BEGIN(policy, ctx, hint);

	if (!ev->hint)
		return baton_events_attributes(ev, policy, ctx, from, hint);
	call->thread = sender;
	is_taken = ev->hint(policy, sender,
			    hint->thread ? thread_at(policy, hint->thread - 1) : NULL, hint);
	baton_end(call);
	return !is_taken;
}

/* Types of the hints that a policy takes, and of its replies. */
static inline void baton_hint_types(const struct events *ev, struct baton_state_type *hint,
				    struct baton_state_type *reply)
{
	if (ev->hint) {
		*hint = ev->hint_type;
		*reply = ev->reply_type;
		return;
	}
	*hint = (struct baton_state_type){ .name = "Attributes", .version = 1 };
	*reply = (struct baton_state_type){ .name = "AttributesReply", .version = 1 };
}

/* Replies to a thread that sent a hint, with `reply->tag` and its words. */
static inline enum baton_reply_answer reply_to(const struct thread *thread,
					       const struct baton_hint *reply)
{
	return baton_host_reply(thread->slot, reply->tag, reply->words);
}

#endif
