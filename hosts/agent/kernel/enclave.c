// SPDX-License-Identifier: GPL-2.0-only
/*
 * The list of enclaves. Process context.
 *
 * Lock order: changing > the kernel's misc_mtx > baton_enclaves_mutex.
 */
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "enclave.h"
#include "register.h"

DEFINE_MUTEX(baton_enclaves_mutex);
static LIST_HEAD(enclaves);
static DEFINE_MUTEX(changing);	/* enclaves are made and removed one at a time */

static void free_enclave(struct kref *ref)
{
	kfree(container_of(ref, struct enclave, ref));
}

void baton_enclave_put(struct enclave *enclave)
{
	kref_put(&enclave->ref, free_enclave);
}

/* The enclave whose device has this minor number, with a reference; NULL if it is gone. */
struct enclave *baton_enclave_get(unsigned int minor)
{
	struct enclave *enclave, *found = NULL;

	mutex_lock(&baton_enclaves_mutex);
	list_for_each_entry(enclave, &enclaves, list)
		if (enclave->device.minor == minor)
			found = enclave;
	if (found)
		kref_get(&found->ref);
	mutex_unlock(&baton_enclaves_mutex);
	return found;
}

static struct enclave *find(const char *name)
{
	struct enclave *enclave;

	list_for_each_entry(enclave, &enclaves, list)
		if (!strcmp((const char *)enclave->ops.name, name))
			return enclave;
	return NULL;
}

static int refuse(struct baton_enclave *arg, int err, const char *why)
{
	strscpy((char *)arg->message, why, sizeof(arg->message));
	return err;
}

/* Under `changing`. */
static int create(struct baton_enclave *arg)
{
	u32 entries = arg->entries ?: BATON_AGENT_ENTRIES;
	u32 limit = arg->limit ?: BATON_ENCLAVE_LIMIT_MS;
	struct enclave *enclave;
	int err;

	if (entries < BATON_AGENT_MIN_ENTRIES || entries > BATON_AGENT_MAX_ENTRIES ||
	    !is_power_of_2(entries))
		return refuse(arg, -EINVAL,
			      "the number of messages is no power of two from 64 to 65536");
	if (limit < BATON_ENCLAVE_MIN_LIMIT_MS || limit > BATON_ENCLAVE_MAX_LIMIT_MS)
		return refuse(arg, -EINVAL, "the limit is not between 20 ms and 60 s");
	enclave = kzalloc(sizeof(*enclave), GFP_KERNEL);
	if (!enclave)
		return -ENOMEM;
	kref_init(&enclave->ref);
	enclave->entries = entries;
	enclave->limit = limit;
	baton_session_calls(&enclave->ops);
	strscpy((char *)enclave->ops.name, (const char *)arg->name, BATON_NAME_LEN);
	err = baton_register(&enclave->ops, THIS_MODULE);
	if (err == -EEXIST)
		refuse(arg, err, "there is a policy or an enclave of that name");
	else if (err == -EINVAL)
		refuse(arg, err, "a name has 1 to 31 characters of a-z, 0-9 and _");
	else if (err == -ENOSPC)
		refuse(arg, err, "there are 16 policies and enclaves already");
	if (err)
		goto put;
	snprintf(enclave->node, sizeof(enclave->node), "baton-enclave-%s", arg->name);
	enclave->device = (struct miscdevice){
		.minor = MISC_DYNAMIC_MINOR,
		.name = enclave->node,
		.fops = &baton_session_fops,
		.mode = 0600,
	};
	/*
	 * Until it is in the list, its device cannot be opened. Nobody can know of it before that.
	 */
	err = misc_register(&enclave->device);
	if (err) {
		baton_unregister(&enclave->ops, THIS_MODULE);
		goto put;
	}
	mutex_lock(&baton_enclaves_mutex);
	list_add_tail(&enclave->list, &enclaves);
	mutex_unlock(&baton_enclaves_mutex);
	return 0;
put:
	baton_enclave_put(enclave);
	return err;
}

/* Under `changing`. */
static void destroy(struct enclave *enclave)
{
	mutex_lock(&baton_enclaves_mutex);
	list_del(&enclave->list);
	enclave->is_gone = true;
	if (enclave->session)
		baton_session_end(enclave->session, NULL);
	mutex_unlock(&baton_enclaves_mutex);
	baton_stop(&enclave->ops);
	baton_unregister(&enclave->ops, THIS_MODULE);
	misc_deregister(&enclave->device);
	baton_enclave_put(enclave);
}

/* Under `changing`. */
static void dismiss(struct enclave *enclave)
{
	mutex_lock(&baton_enclaves_mutex);
	if (enclave->session)
		baton_session_end(enclave->session, NULL);
	mutex_unlock(&baton_enclaves_mutex);
}

static void read_session(struct baton_enclave *arg, const struct session *session)
{
	u32 cpu;

	arg->agent = pid_nr(session->process);
	arg->queued = READ_ONCE(session->head->queued);
	arg->lost = READ_ONCE(session->head->lost);
	for (cpu = 0; cpu < session->nr_cpus; cpu++) {
		arg->posted += READ_ONCE(session->served[cpu].posted);
		arg->picks += READ_ONCE(session->cpus[cpu].picks);
		arg->stale += READ_ONCE(session->cpus[cpu].stale);
	}
}

static void read(struct baton_enclave *arg)
{
	struct enclave *enclave;
	u32 index = arg->index;

	memset(arg, 0, sizeof(*arg));
	arg->index = index;
	mutex_lock(&baton_enclaves_mutex);
	list_for_each_entry(enclave, &enclaves, list) {
		if (index--)
			continue;
		memcpy(arg->name, enclave->ops.name, BATON_NAME_LEN);
		arg->entries = enclave->entries;
		arg->limit = enclave->limit;
		arg->attached = enclave->attached;
		if (enclave->session)
			read_session(arg, enclave->session);
	}
	mutex_unlock(&baton_enclaves_mutex);
}

/* BATON_ENCLAVE_IOC_SET. `message` of `arg` receives the reason for a refusal. */
int baton_enclave_set(struct baton_enclave *arg)
{
	struct enclave *enclave;
	int err = 0;

	arg->message[0] = 0;
	if (arg->act == BATON_ENCLAVE_ACT_READ) {
		read(arg);
		return 0;
	}
	if (strnlen((const char *)arg->name, BATON_NAME_LEN) == BATON_NAME_LEN)
		return -EINVAL;
	mutex_lock(&changing);
	enclave = find((const char *)arg->name);
	switch (arg->act) {
	case BATON_ENCLAVE_ACT_CREATE:
		err = create(arg);
		break;
	case BATON_ENCLAVE_ACT_DESTROY:
	case BATON_ENCLAVE_ACT_DISMISS:
		if (!enclave)
			err = refuse(arg, -ENOENT, "there is no enclave of that name");
		else if (arg->act == BATON_ENCLAVE_ACT_DESTROY)
			destroy(enclave);
		else
			dismiss(enclave);
		break;
	default:
		err = -EINVAL;
	}
	mutex_unlock(&changing);
	return err;
}

void baton_enclaves_destroy_all(void)
{
	struct enclave *enclave, *next;

	mutex_lock(&changing);
	list_for_each_entry_safe(enclave, next, &enclaves, list)
		destroy(enclave);
	mutex_unlock(&changing);
}
