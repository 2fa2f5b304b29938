// SPDX-License-Identifier: GPL-2.0-only
/*
 * `rusty_c`: a queue for each cache, and a tuner that balances them, in C. After scx_rusty, whose
 * tuner is a program.
 *
 * 1. A domain is the cores under one last-level cache. Its threads wait in one queue, in the order
 *    of their vruntime: their CPU time, divided by the weight of their nice value. A thread that
 *    comes to a domain gets no more than a slice of a lead.
 * 2. A woken or new thread goes to an idle core: the nearest to where it last ran, one whose SMT
 *    siblings are idle before others. If no core is idle, it waits in the domain where it last ran.
 * 3. A core runs the first thread of its domain that may run there for a slice (5 ms; less below
 *    nice 0, in proportion to the weight).
 * 4. A core that becomes idle takes the first thread that may run there from the nearest domain in
 *    which one waits. A thread that comes to wait wakes an idle core for that, and so does each
 *    tick while one waits.
 * 5. Every 100 ms, the tuner looks at the weight of the threads that wait, for each core of a
 *    domain. It moves threads from the domain with most to the one with least, until they are
 *    within 10 % of each other. No thread starves, whatever the weights: one that the tuner finds
 *    waiting for the sixth time is next.
 */
#include "events.h"

#define SLICE 5000000ULL
#define TUNING 100000000ULL
#define LOOKS 6

struct rusty {
	struct policy policy;
	s32 tuner;		/* the CPU whose timer is the tuner's; -1 if none is armed */
};

struct rusty_thread {
	struct thread thread;
	u64 vruntime;		/* ns at nice 0 */
	u64 runtime;		/* up to which it is charged */
	u32 looks;		/* how often the tuner found it waiting */
};

/* Of a domain, its first core has the queue, whose lock guards these, too. */
struct rusty_core {
	struct core core;
	struct queue waiting, starved;
	u64 least;		/* vruntime; does not go back */
	u64 load;		/* weights of the threads that wait */
};

static struct rusty_thread *of(const struct thread *thread)
{
	return container_of(thread, struct rusty_thread, thread);
}

static struct rusty_core *at(struct core *core)
{
	return container_of(core, struct rusty_core, core);
}

/* The first core of a core's domain. */
static struct core *domain(struct core *core)
{
	return core_at(core->policy, core->policy->places[core->begin[LEVEL_CACHE]]);
}

static u32 cores_of(const struct core *domain)
{
	return domain->end[LEVEL_CACHE] - domain->begin[LEVEL_CACHE];
}

/* In an event of a core, which is locked: its domain as well. */
static struct core *lock_domain(struct core *core)
{
	if (domain(core) != core)
		lock_core(domain(core));
	return domain(core);
}

static void unlock_domain(struct core *core)
{
	if (domain(core) != core)
		unlock_core(domain(core));
}

static bool rusty_before(const struct thread *a, const struct thread *b)
{
	return baton_before(of(a)->vruntime, of(b)->vruntime);
}

static const char *rusty_init(struct policy *policy, const struct baton_env *env)
{
	struct core *core;

	container_of(policy, struct rusty, policy)->tuner = -1;
	for_each_core(policy, core) {
		queue_init(&at(core)->waiting, core, QUEUE_RBTREE);
		queue_init(&at(core)->starved, core, QUEUE_FIFO);
	}
	return env->options[0] ? "rusty_c has no options" : NULL;
}

static struct core *rusty_prepare(struct policy *policy, struct thread *thread,
				  const struct wake *wake)
{
	struct core *idle = claim_idle(thread, wake->prev);

	return idle ? idle : wake->prev;
}

/* Puts a thread into the queue of a domain, which is locked. */
static void join(struct thread *thread, struct core *domain, u64 vruntime)
{
	if (baton_before(vruntime, at(domain)->least - SLICE))
		vruntime = at(domain)->least - SLICE;
	of(thread)->vruntime = vruntime;
	if (change_state(thread, THREAD_READY, domain, &at(domain)->waiting))
		at(domain)->load += thread_weight(thread);
}

static void rusty_new(struct policy *policy, struct thread *thread, struct core *core)
{
	struct core *domain = lock_domain(core);

	of(thread)->runtime = thread->runtime;
	join(thread, domain, at(domain)->least);
	unlock_domain(core);
	wake_idle_core(thread, core);
}

static void rusty_unblock(struct policy *policy, struct thread *thread, struct core *core)
{
	join(thread, lock_domain(core), of(thread)->vruntime);
	unlock_domain(core);
	if (thread->flags & THREAD_OUSTED)
		wake_idle_core(thread, core);
}

static void charge(struct thread *thread)
{
	of(thread)->vruntime += (thread->runtime - of(thread)->runtime) * WEIGHT_OF_NICE_0 /
				thread_weight(thread);
	of(thread)->runtime = thread->runtime;
}

static void rusty_preempt(struct policy *policy, struct thread *thread)
{
	struct core *core = thread->core;

	charge(thread);
	join(thread, lock_domain(core), of(thread)->vruntime);
	unlock_domain(core);
	wake_idle_core(thread, core);
}

static void rusty_tick(struct policy *policy, struct thread *thread)
{
	struct core *core = thread->core, *domain = lock_domain(core);
	struct thread *first = queue_first(&at(domain)->waiting);

	if (first)
		wake_idle_core(first, core);
	unlock_domain(core);
}

static void rusty_block(struct policy *policy, struct thread *thread)
{
	if (thread->state == THREAD_READY)
		at(thread->core)->load -= thread_weight(thread);
	else
		charge(thread);
	change_state(thread, THREAD_BLOCKED, NULL, NULL);
}

static void rusty_terminate(struct policy *policy, struct thread *thread)
{
	if (thread->state == THREAD_READY)
		at(thread->core)->load -= thread_weight(thread);
	change_state(thread, THREAD_TERMINATED, NULL, NULL);
}

static void rusty_reweight(struct policy *policy, struct thread *thread, s32 old_nice)
{
	if (thread->state == THREAD_READY)
		at(thread->core)->load += thread_weight(thread) - (u64)weight_of_nice(old_nice);
}

/* The first thread of a domain's queue that may run on a core. The domain is locked. */
static struct thread *first_for(const struct queue *queue, const struct core *core)
{
	struct thread *thread = queue_first(queue);

	while (thread && !thread_may_run(thread, core))
		thread = queue_next(thread);
	return thread;
}

static void rusty_schedule(struct policy *policy, struct core *core)
{
	struct rusty *rusty = container_of(policy, struct rusty, policy);
	struct core *domain = lock_domain(core);
	struct thread *starved = first_for(&at(domain)->starved, core), *prev = core->running;
	struct thread *first = starved ? starved : first_for(&at(domain)->waiting, core);

	if (prev)
		charge(prev);
	if (first && (starved || !prev || !rusty_before(prev, first))) {
		if (!starved && baton_before(at(domain)->least, of(first)->vruntime))
			at(domain)->least = of(first)->vruntime;
		if (change_state(first, THREAD_RUNNING, core, NULL))
			at(domain)->load -= thread_weight(first);
		of(first)->looks = 0;
		prev = first;
	}
	if (prev && thread_weight(prev) < WEIGHT_OF_NICE_0)
		run_for(SLICE * thread_weight(prev) / WEIGHT_OF_NICE_0);
	else
		run_for(SLICE);
	unlock_domain(core);
	if (baton_read(rusty->tuner) < 0) {
		WRITE_ONCE(rusty->tuner, core->cpu);
		arm_timer(TUNING);
	}
}

/* Moves a thread from one domain to another. Both are locked. */
static bool move(struct thread *thread, struct core *from, struct core *to)
{
	u64 vruntime = of(thread)->vruntime - at(from)->least + at(to)->least;

	if (!change_state(thread, THREAD_MIGRATING, to, NULL))
		return false;
	at(from)->load -= thread_weight(thread);
	join(thread, to, vruntime);
	return true;
}

static void rusty_newly_idle(struct policy *policy, struct core *core)
{
	struct core *own = domain(core), *other;
	struct thread *thread;

	for_each_core_near(core, LEVEL_MACHINE, other) {
		if (domain(other) != other || other == own ||
		    !(queue_count(&at(other)->waiting) + queue_count(&at(other)->starved)))
			continue;
		lock_cores(own, other);
		thread = first_for(&at(other)->starved, core);
		if (!thread)
			thread = first_for(&at(other)->waiting, core);
		if (thread)
			move(thread, other, own);
		unlock_cores(own, other);
		if (thread)
			return;
	}
}

/* Weight of the threads that wait in a domain, for each of its cores. */
static u64 load_of(struct core *domain)
{
	return baton_read(at(domain)->load) / cores_of(domain);
}

static void look(struct core *domain)
{
	struct thread *thread, *next;

	lock_core(domain);
	for (thread = queue_first(&at(domain)->waiting); thread; thread = next) {
		next = queue_next(thread);
		if (++of(thread)->looks < LOOKS ||
		    !change_state(thread, THREAD_MIGRATING, domain, NULL))
			continue;
		change_state(thread, THREAD_READY, domain, &at(domain)->starved);
	}
	unlock_core(domain);
}

static void rusty_timer(struct policy *policy, struct core *core)
{
	struct core *other, *most = domain(core), *least = most;
	struct thread *thread, *next;

	arm_timer(TUNING);
	for_each_core(policy, other) {
		if (domain(other) != other)
			continue;
		look(other);
		if (load_of(other) > load_of(most))
			most = other;
		if (load_of(other) < load_of(least))
			least = other;
	}
	if (most == least)
		return;
	lock_cores(most, least);
	for (thread = queue_first(&at(most)->waiting); thread; thread = next) {
		next = queue_next(thread);
		if (load_of(most) * 10 <= load_of(least) * 11 + thread_weight(thread))
			break;
		if (thread_may_run(thread, least) && move(thread, most, least))
			wake_idle_core(thread, least);
	}
	unlock_cores(most, least);
}

/* The tuner moves to the next core that chooses a thread. */
static void rusty_exit(struct policy *policy, struct core *core)
{
	struct rusty *rusty = container_of(policy, struct rusty, policy);

	if (baton_read(rusty->tuner) == core->cpu)
		WRITE_ONCE(rusty->tuner, -1);
}

static const struct events rusty_c = {
	.version = 1,
	.policy_size = sizeof(struct rusty),
	.core_size = sizeof(struct rusty_core),
	.thread_size = sizeof(struct rusty_thread),
	.before = rusty_before,
	.init = rusty_init,
	.new_prepare = rusty_prepare,
	.new_place = rusty_new,
	.unblock_prepare = rusty_prepare,
	.unblock_place = rusty_unblock,
	.block = rusty_block,
	.preempt = rusty_preempt,
	.tick = rusty_tick,
	.reweight = rusty_reweight,
	.terminate = rusty_terminate,
	.schedule = rusty_schedule,
	.newly_idle = rusty_newly_idle,
	.timer = rusty_timer,
	.core_exit = rusty_exit,
};

BATON_POLICY(rusty_c);
