/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For applications in C: sends hints to the scheduling policy that runs them, and reads its
 * replies. See docs/hints.md. The structures are in baton.h beside this file.
 *
 * A queue belongs to one thread, which opens, uses and closes it. Sending and receiving make no
 * system call.
 */
#ifndef BATON_HINTS_CLIENT_H
#define BATON_HINTS_CLIENT_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "baton.h"

#define BATON_HINTS_PATH "/dev/baton-hints"

struct baton_hints {
	int fd;
	uint32_t entries;
	size_t size;
	uint64_t next_hint, next_reply;
	struct baton_hints_head *head;
	struct baton_hints_entry *hints, *replies;
	char message[BATON_MESSAGE_LEN];	/* why it was not opened, and the remedy */
};

/*
 * Opens the calling thread's queue to a policy that takes hints of the first type and version, and
 * sends replies of the second. `entries` is a power of two from BATON_HINTS_MIN_ENTRIES on. Returns
 * 0, or -1 with errno and a message.
 */
static inline int baton_hints_open(struct baton_hints *queue, const char *policy, const char *hint, uint32_t hint_version,
				   const char *reply, uint32_t reply_version, uint32_t entries)
{
	struct baton_hints_open open_it = { .entries = entries };
	void *at;
	int saved;

	memset(queue, 0, sizeof(*queue));
	if (strlen(policy) >= BATON_NAME_LEN || strlen(hint) >= BATON_NAME_LEN || strlen(reply) >= BATON_NAME_LEN) {
		snprintf(queue->message, sizeof(queue->message),
			 "names of policies and types have at most %d letters: check them (baton status)", BATON_NAME_LEN - 1);
		errno = ENAMETOOLONG;
		return -1;
	}
	strncpy((char *)open_it.policy, policy, BATON_NAME_LEN - 1);
	strncpy(open_it.hint.name, hint, BATON_NAME_LEN - 1);
	strncpy(open_it.reply.name, reply, BATON_NAME_LEN - 1);
	open_it.hint.version = hint_version;
	open_it.reply.version = reply_version;
	queue->fd = open(BATON_HINTS_PATH, O_RDWR | O_CLOEXEC);
	if (queue->fd < 0) {
		saved = errno;
		if (saved == EACCES)
			snprintf(queue->message, sizeof(queue->message),
				 BATON_HINTS_PATH
				 " cannot be opened: no grant permits that (baton hints grant)");
		else
			snprintf(queue->message, sizeof(queue->message),
				 BATON_HINTS_PATH " cannot be opened: %s; is a policy loaded (baton load)?", strerror(saved));
		errno = saved;
		return -1;
	}
	if (ioctl(queue->fd, BATON_HINTS_IOC_OPEN, &open_it) == 0) {
		at = mmap(NULL, open_it.size, PROT_READ | PROT_WRITE, MAP_SHARED, queue->fd, 0);
		if (at != MAP_FAILED) {
			queue->entries = open_it.entries;
			queue->size = open_it.size;
			queue->head = (struct baton_hints_head *)at;
			queue->hints = (struct baton_hints_entry *)(queue->head + 1);
			queue->replies = queue->hints + queue->entries;
			return 0;
		}
	}
	saved = errno;
	memcpy(queue->message, open_it.message, sizeof(queue->message));
	if (!queue->message[0])
		snprintf(queue->message, sizeof(queue->message), "there is no queue: %s", strerror(saved));
	close(queue->fd);
	errno = saved;
	return -1;
}

static inline void baton_hints_close(struct baton_hints *queue)
{
	munmap(queue->head, queue->size);
	close(queue->fd);
}

/* Why the queue is closed: an enum baton_hints_end. */
static inline uint32_t baton_hints_end(const struct baton_hints *queue)
{
	return __atomic_load_n(&queue->head->end, __ATOMIC_RELAXED);
}

/*
 * The sequence of the entry at a place in the ring while the writer owns it. See
 * policy/message/src/ring.rs.
 */
static inline uint32_t baton_hints_sequence(const struct baton_hints *queue, uint64_t place)
{
	return (uint32_t)(place / queue->entries) * 2;
}

/*
 * Sends a hint to the policy. Returns 0, or -1 with EAGAIN when the ring is full or ESHUTDOWN when
 * the queue is closed.
 */
static inline int baton_hints_send(struct baton_hints *queue, const struct baton_hint *hint)
{
	struct baton_hints_entry *entry = &queue->hints[queue->next_hint % queue->entries];
	uint32_t sequence = baton_hints_sequence(queue, queue->next_hint);
	int i;

	if (baton_hints_end(queue)) {
		errno = ESHUTDOWN;
		return -1;
	}
	if (__atomic_load_n(&entry->sequence, __ATOMIC_ACQUIRE) != sequence) {
		errno = EAGAIN;
		return -1;
	}
	entry->tag = hint->tag;
	entry->thread = hint->thread;
	for (i = 0; i < BATON_HINT_WORDS; i++)
		entry->words[i] = hint->words[i];
	__atomic_store_n(&entry->sequence, sequence + 1, __ATOMIC_RELEASE);
	queue->next_hint++;
	return 0;
}

/*
 * Sends a hint by a system call, after those in the ring. Returns an enum baton_hint_answer, or -1
 * with errno.
 */
static inline int baton_hints_send_now(struct baton_hints *queue, const struct baton_hint *hint)
{
	struct baton_hints_send send_it = { .hint = *hint };

	return ioctl(queue->fd, BATON_HINTS_IOC_SEND, &send_it) ? -1 : (int)send_it.answer;
}

/* Reads the next reply. Returns 1, or 0 if there is none. */
static inline int baton_hints_receive(struct baton_hints *queue, struct baton_hint *reply)
{
	struct baton_hints_entry *entry = &queue->replies[queue->next_reply % queue->entries];
	uint32_t sequence = baton_hints_sequence(queue, queue->next_reply);
	int i;

	if (__atomic_load_n(&entry->sequence, __ATOMIC_ACQUIRE) != sequence + 1)
		return 0;
	reply->tag = entry->tag;
	reply->thread = 0;
	for (i = 0; i < BATON_HINT_WORDS; i++)
		reply->words[i] = entry->words[i];
	__atomic_store_n(&entry->sequence, sequence + 2, __ATOMIC_RELEASE);
	queue->next_reply++;
	return 1;
}

/*
 * Reads the next reply, and sleeps until there is one. Returns 1, 0 when the time is over or the
 * queue is closed, or -1 with errno.
 */
static inline int baton_hints_wait(struct baton_hints *queue, struct baton_hint *reply, int timeout_ms)
{
	struct pollfd ready = { .fd = queue->fd, .events = POLLIN };

	if (baton_hints_receive(queue, reply))
		return 1;
	if (poll(&ready, 1, timeout_ms) < 0)
		return -1;
	return baton_hints_receive(queue, reply);
}

#endif
