// SPDX-License-Identifier: GPL-2.0-only
/*
 * An agent's time in an enclave: the file of the enclave's device, the memory that is mapped
 * through it, and how it begins and ends. Process context.
 *
 * A session begins by BATON_AGENT_IOC_ATTACH, which starts the enclave's policy. It ends when the
 * agent says so, when its process closes the file or dies, when the watch gives it up, or when the
 * policy is stopped by others. The memory stays until the last reference to the file is gone.
 */
#include <linux/ctype.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "enclave.h"
#include "register.h"

/* An open file of an enclave. */
struct opened {
	struct enclave *enclave;
	struct session *session;	/* set once, under baton_enclaves_mutex */
};

/* The session for which `create` is called, and its thread. Under baton_enclaves_mutex. */
static struct session *beginning;
static struct task_struct *beginner;

static void free_session(struct session *session)
{
	baton_memory_free(session);
	put_pid(session->process);
	baton_enclave_put(session->enclave);
	kfree(session);
}

/* The policy's `create`. */
static void *agent_create(const struct baton_env *env)
{
	struct session *session = beginning;

	if (beginner != current) {
		strscpy(env->message, "an enclave is started by its agent: see baton agent run",
			BATON_MESSAGE_LEN);
		return NULL;
	}
	if (!baton_memory_make(session, env)) {
		strscpy(env->message, "there is no memory for the enclave's rings",
			BATON_MESSAGE_LEN);
		return NULL;
	}
	baton_serve_init(session);
	return session;
}

/* The policy's `destroy`: it was stopped. Under baton.ko's control mutex. */
static void agent_destroy(void *this)
{
	struct session *session = this;

	WRITE_ONCE(session->head->ended, 1);
	baton_serve_end(session);
}

static int begin(struct opened *opened, struct baton_agent_attach *arg)
{
	struct enclave *enclave = opened->enclave;
	struct session *session;
	u32 cpu;
	int err;

	if (enclave->is_gone)
		return -ENODEV;
	if (enclave->session || opened->session) {
		snprintf((char *)arg->message, sizeof(arg->message),
			 "the enclave has an agent already, process %d",
			 enclave->session ? pid_vnr(enclave->session->process) : 0);
		return -EBUSY;
	}
	session = kzalloc(sizeof(*session), GFP_KERNEL);
	if (!session)
		return -ENOMEM;
	kref_get(&enclave->ref);
	session->enclave = enclave;
	session->process = get_pid(task_tgid(current));
	session->entries = enclave->entries;
	session->events = arg->events;
	INIT_DELAYED_WORK(&session->watch, baton_watch_session);
	beginning = session;
	beginner = current;
	enclave->ops.hint = arg->hint_type.name[0] ? baton_calls.hint : NULL;
	enclave->ops.hint_type = arg->hint_type;
	enclave->ops.reply_type = arg->reply_type;
	/* Ticks are also needed for messages that can wait: see calls.c. */
	err = baton_start(&enclave->ops, arg->events | BATON_EV_TICK, (const char *)arg->options,
			  (char *)arg->message);
	beginner = NULL;
	if (err < 0) {
		free_session(session);
		return err;
	}
	session->policy = err;
	enclave->session = session;
	enclave->attached++;
	/* read without the mutex */
	smp_store_release(&opened->session, session);
	schedule_delayed_work(&session->watch, 1);
	/* So that those that idle say so: a transaction for one that does not is no reason to kick. */
	for (cpu = 0; cpu < session->nr_cpus; cpu++)
		if (READ_ONCE(session->cpus[cpu].online))
			baton_kick_cpu(cpu, false);
	baton_memory_layout(session, arg);
	return 0;
}

static int try_attach(struct file *file, struct baton_agent_attach *arg)
{
	int err;

	arg->message[0] = 0;
	if (arg->abi != BATON_ABI) {
		snprintf((char *)arg->message, sizeof(arg->message),
			 "the agent was built for version %u of the interface, not %u", arg->abi,
			 BATON_ABI);
		return -ENOEXEC;
	}
	if (strnlen((const char *)arg->options, BATON_OPTIONS_LEN) == BATON_OPTIONS_LEN ||
	    !memchr(arg->hint_type.name, 0, BATON_NAME_LEN) ||
	    !memchr(arg->reply_type.name, 0, BATON_NAME_LEN))
		return -EINVAL;
	mutex_lock(&baton_enclaves_mutex);
	/*
	 * The enclave may have been given to another user since the file was opened. Whoever does
	 * that looks for an agent of the old user afterwards, under this mutex.
	 */
	err = file_permission(file, MAY_READ | MAY_WRITE) ?: begin(file->private_data, arg);
	mutex_unlock(&baton_enclaves_mutex);
	return err;
}

/* BATON_AGENT_IOC_ATTACH. A refused request returns with the reason. */
static int attach(struct file *file, struct baton_agent_attach __user *user)
{
	struct baton_agent_attach arg;
	int err;

	if (copy_from_user(&arg, user, sizeof(arg)))
		return -EFAULT;
	err = try_attach(file, &arg);
	return copy_to_user(user, &arg, sizeof(arg)) ? -EFAULT : err;
}

/*
 * Ends a session: with a report as a fault of the policy, else in good order. Under
 * baton_enclaves_mutex. When it returns, no call uses the session.
 */
void baton_session_end(struct session *session, const struct baton_agent_fail *report)
{
	if (session->enclave->session != session)
		return;
	session->enclave->session = NULL;
	if (report)
		baton_fail(&session->enclave->ops, session, report);
	else
		baton_stop(&session->enclave->ops);
	WRITE_ONCE(session->head->ended, 1);
	baton_serve_end(session);
}

/*
 * Ends a session with a report. The policy is stopped before any lock is taken, as a task of the
 * enclave may hold it.
 */
static void fail_session(struct session *session, const struct baton_agent_fail *report)
{
	baton_fail(&session->enclave->ops, session, report);
	mutex_lock(&baton_enclaves_mutex);
	baton_session_end(session, report);
	mutex_unlock(&baton_enclaves_mutex);
}

/* Ends a session whose agent is gone, or does not answer. */
void baton_session_gone(struct session *session, enum baton_fault_kind kind, const char *why)
{
	struct baton_agent_fail report = { .kind = kind };

	report.pid = pid_nr(session->process);
	strscpy((char *)report.message, why, sizeof(report.message));
	fail_session(session, &report);
}

/* Text of an agent, for reports and for the kernel's log: one line that can be printed. */
static void make_printable(u8 *text, size_t size)
{
	size_t i;

	text[size - 1] = 0;
	for (i = 0; text[i]; i++)
		if (iscntrl(text[i]))
			text[i] = '?';
}

/* BATON_AGENT_IOC_FAIL */
static int fail(struct session *session, const struct baton_agent_fail __user *user)
{
	struct baton_agent_fail arg;

	if (copy_from_user(&arg, user, sizeof(arg)))
		return -EFAULT;
	if (arg.kind > BATON_FAULT_KIND_AGENT_GONE)
		return -EINVAL;
	make_printable(arg.file, sizeof(arg.file));
	make_printable(arg.message, sizeof(arg.message));
	if (arg.kind != BATON_FAULT_KIND_NONE) {
		fail_session(session, &arg);
		return 0;
	}
	mutex_lock(&baton_enclaves_mutex);
	baton_session_end(session, NULL);
	mutex_unlock(&baton_enclaves_mutex);
	return 0;
}

/* BATON_AGENT_IOC_TOPOLOGY */
static int topology(const struct session *session, struct baton_agent_topology __user *user)
{
	struct baton_agent_topology arg;

	if (copy_from_user(&arg, user, sizeof(arg)))
		return -EFAULT;
	if (arg.cpu >= session->nr_cpus)
		return -EINVAL;
	arg.place = session->topology[arg.cpu];
	return copy_to_user(user, &arg, sizeof(arg)) ? -EFAULT : 0;
}

/*
 * A request for a session. Each has its own copy of its structure, as the kernel clears what is on
 * the stack.
 */
/* BATON_AGENT_IOC_REPLY */
static int reply(struct session *session, struct baton_agent_reply __user *user)
{
	struct baton_agent_reply arg;

	if (copy_from_user(&arg, user, sizeof(arg)))
		return -EFAULT;
	arg.reply.thread = 0;
	arg.answer = BATON_REPLY_ANSWER_NO_QUEUE;
	/* The enclave's policy is unregistered after the session has ended, and a grace period. */
	rcu_read_lock();
	if (!READ_ONCE(session->head->ended) && arg.slot < session->nr_slots)
		arg.answer = baton_reply(session->policy, arg.slot, &arg.reply);
	rcu_read_unlock();
	return put_user(arg.answer, &user->answer);
}

static int perform(struct session *session, unsigned int cmd, void __user *user)
{
	switch (cmd) {
	case BATON_AGENT_IOC_TOPOLOGY:
		return topology(session, user);
	case BATON_AGENT_IOC_KICK:
		return baton_kick(session, user);
	case BATON_AGENT_IOC_SERVE:
		return baton_serve(session, user);
	case BATON_AGENT_IOC_LEAVE:
		return baton_serve_leave(session);
	case BATON_AGENT_IOC_WAIT:
		return baton_serve_wait(session, (unsigned long)user);
	case BATON_AGENT_IOC_FAIL:
		return fail(session, user);
	case BATON_AGENT_IOC_COMMIT:
		return baton_commit(session, user);
	case BATON_AGENT_IOC_REPLY:
		return reply(session, user);
	}
	return -ENOTTY;
}

static long session_ioctl(struct file *file, unsigned int cmd, unsigned long at)
{
	struct opened *opened = file->private_data;
	struct session *session = smp_load_acquire(&opened->session);
	void __user *user = (void __user *)at;
	int err = -ESHUTDOWN;

	/* The most frequent request. Only a thread that baton_serve() has accepted can wait. */
	if (likely(cmd == BATON_AGENT_IOC_WAIT && session && !READ_ONCE(session->head->ended))) {
		err = baton_serve_wait(session, at);
		if (likely(err != -ESHUTDOWN))
			return err;
	}
	if (cmd == BATON_AGENT_IOC_ATTACH)
		return attach(file, user);
	if (!session)
		return -ENODATA;
	if (task_tgid(current) != session->process)
		return -EPERM;
	if (!READ_ONCE(session->head->ended))
		err = perform(session, cmd, user);
	if (READ_ONCE(session->head->ended))
		baton_serve_dismiss(session);
	return err;
}

static int session_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct opened *opened = file->private_data;
	struct session *session = smp_load_acquire(&opened->session);
	unsigned long shared = BATON_AGENT_SHARED >> PAGE_SHIFT;
	void *memory;
	unsigned long page;

	if (!session)
		return -ENODATA;
	if (task_tgid(current) != session->process || !(vma->vm_flags & VM_SHARED))
		return -EPERM;
	if (vma->vm_pgoff < shared) {
		if (vma->vm_flags & VM_WRITE)
			return -EPERM;
		vm_flags_clear(vma, VM_MAYWRITE);
		memory = session->head;
		page = vma->vm_pgoff;
	} else {
		memory = session->transactions;
		page = vma->vm_pgoff - shared;
	}
	vm_flags_set(vma, VM_DONTCOPY);
	return remap_vmalloc_range(vma, memory, page);
}

static int session_open(struct inode *inode, struct file *file)
{
	struct opened *opened = kzalloc(sizeof(*opened), GFP_KERNEL);

	file->private_data = opened;
	if (!opened)
		return -ENOMEM;
	opened->enclave = baton_enclave_get(iminor(inode));
	if (opened->enclave)
		return 0;
	kfree(opened);
	return -ENODEV;
}

/*
 * The session ends when the agent's process closes the file, also because it dies. A child that
 * inherited the file does not keep the session.
 */
static int session_flush(struct file *file, fl_owner_t id)
{
	struct opened *opened = file->private_data;
	struct session *session = smp_load_acquire(&opened->session);
	char why[BATON_MESSAGE_LEN];
	u32 signal = current->exit_code & 0x7f;

	if (!session || task_tgid(current) != session->process || READ_ONCE(session->head->ended))
		return 0;
	if (!(current->flags & PF_EXITING))
		strscpy(why, "the agent closed the enclave", sizeof(why));
	else if (signal)
		snprintf(why, sizeof(why), "the agent's process was ended by signal %u", signal);
	else
		snprintf(why, sizeof(why), "the agent's process ended with status %d",
			 current->exit_code >> 8 & 0xff);
	baton_session_gone(session, BATON_FAULT_KIND_AGENT_GONE, why);
	return 0;
}

/* The last reference to the file is gone. */
static int session_release(struct inode *inode, struct file *file)
{
	struct opened *opened = file->private_data;
	struct session *session = opened->session;

	if (session) {
		baton_session_gone(session, BATON_FAULT_KIND_AGENT_GONE,
				   "the agent's process has ended");
		cancel_delayed_work_sync(&session->watch);
		baton_serve_free(session);
		free_session(session);
	}
	baton_enclave_put(opened->enclave);
	kfree(opened);
	return 0;
}

const struct file_operations baton_session_fops = {
	.owner = THIS_MODULE,
	.open = session_open,
	.flush = session_flush,
	.release = session_release,
	.unlocked_ioctl = session_ioctl,
	.mmap = session_mmap,
};

/* The functions of an enclave's policy. */
void baton_session_calls(struct baton_policy *ops)
{
	*ops = baton_calls;
	ops->create = agent_create;
	ops->destroy = agent_destroy;
}
