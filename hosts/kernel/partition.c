// SPDX-License-Identifier: GPL-2.0-only
/*
 * Partitions: CPUs that only some policies have. The rules (hosts/core/src/partition.rs) know the
 * partition of each CPU and policy. This file has the names, and checks requests. Process context
 * under baton_control_mutex, unless noted.
 */
#include <linux/bitmap.h>
#include <linux/cpumask.h>
#include <linux/ctype.h>
#include <linux/slab.h>

#include "core.h"
#include "place.h"

/* the name of partition i + 1; empty if there is no such partition */
static char names[BATON_MAX_PARTITIONS][BATON_NAME_LEN];
u32 baton_partitioned;	/* 1 while there is a partition */

struct change {
	u32 id;
	u64 cpus[BATON_CPU_WORDS];
	u32 policies;
};

const char *baton_partition_name(u32 id)
{
	return id && id <= BATON_MAX_PARTITIONS ? names[id - 1] : "";
}

/* The partition of that name, or 0. With an empty name, a free one. */
static u32 find(const char *name)
{
	u32 i;

	for (i = 0; i < BATON_MAX_PARTITIONS; i++)
		if (!strcmp(names[i], name))
			return i + 1;
	return 0;
}

static bool has(const u64 *cpus, u32 cpu)
{
	return cpu / 64 < BATON_CPU_WORDS && cpus[cpu / 64] & BIT_ULL(cpu % 64);
}

/* Reads the current definition of a partition. Any context. */
static void read_partition(u32 id, struct change *is)
{
	int cpu, i;

	memset(is, 0, sizeof(*is));
	is->id = id;
	for_each_possible_cpu(cpu)
		if (baton_core_partition_of_cpu(cpu) == id && cpu / 64 < BATON_CPU_WORDS)
			is->cpus[cpu / 64] |= BIT_ULL(cpu % 64);
	for (i = 0; i < BATON_MAX_POLICIES; i++)
		if (baton_core_partition_of_policy(i) == id)
			is->policies |= BIT(i);
}

static void note_partitioned(void)
{
	bool any = false;
	int cpu;

	for_each_possible_cpu(cpu)
		any |= baton_core_partition_of_cpu(cpu) != 0;
	WRITE_ONCE(baton_partitioned, any);
}

/* All other CPUs are held, and interrupts are off. */
static void change_while_held(void *data)
{
	const struct change *to = data;
	struct baton_frame *frame = this_cpu_ptr(&baton_frame);

	/* Policies must see which CPUs are theirs when they are notified of the change. */
	WRITE_ONCE(baton_partitioned, 1);
	baton_core_set_partition(to->id, to->cpus, BATON_CPU_WORDS, to->policies,
				 baton_coarse_now(), frame, frame->cpu);
	note_partitioned();
}

static bool valid(const char *name)
{
	size_t i, len = strnlen(name, BATON_NAME_LEN);

	for (i = 0; i < len && len < BATON_NAME_LEN; i++)
		if (!islower(name[i]) && !isdigit(name[i]) && name[i] != '_' && name[i] != '-')
			return false;
	return len && len < BATON_NAME_LEN;
}

static int refuse(struct baton_partition *arg, int err, const char *why)
{
	strscpy(arg->message, why, sizeof(arg->message));
	return err;
}

static int check_cpus(struct baton_partition *arg, u32 id)
{
	bool any_left = false;
	u32 cpu, owner;

	for (cpu = 0; cpu < BATON_CPU_WORDS * 64; cpu++) {
		if (has(arg->cpus, cpu) && (cpu >= nr_cpu_ids || !cpu_possible(cpu))) {
			scnprintf(arg->message, sizeof(arg->message), "there is no CPU %u", cpu);
			return -EINVAL;
		}
	}
	for_each_possible_cpu(cpu) {
		owner = baton_core_partition_of_cpu(cpu);
		if (has(arg->cpus, cpu) && owner && owner != id) {
			scnprintf(arg->message, sizeof(arg->message), "CPU %u is in partition %s",
				  cpu, baton_partition_name(owner));
			return -EBUSY;
		}
		any_left |= cpu_online(cpu) && !has(arg->cpus, cpu) && (!owner || owner == id);
	}
	return any_left
		       ? 0
		       : refuse(arg, -EINVAL, "no CPU that is online would be left for all others");
}

/* Defines, changes or ends a partition. All checks come before any change. */
int baton_set_partition(struct baton_partition *arg)
{
	struct change *to;
	bool empty;
	int i, err = 0;
	u32 id;

	arg->message[0] = 0;
	if (!valid(arg->name))
		return refuse(arg, -EINVAL,
			      "the name of a partition is of a to z, 0 to 9, _ and -, at most 31");
	to = kzalloc(sizeof(*to), GFP_KERNEL);
	if (!to)
		return -ENOMEM;
	id = find(arg->name);
	for (i = 0; i < BATON_MAX_POLICIES && arg->policies[i][0]; i++) {
		const char *name = arg->policies[i];
		const struct baton_place *place =
			strnlen(name, BATON_NAME_LEN) < BATON_NAME_LEN ? baton_find(name) : NULL;
		u32 owner = place ? baton_core_partition_of_policy(baton_place_index(place)) : 0;

		if (!place) {
			scnprintf(arg->message, sizeof(arg->message), "no policy %.31s is loaded",
				  name);
			err = -ENOENT;
			goto out;
		}
		if (owner && owner != id) {
			scnprintf(arg->message, sizeof(arg->message),
				  "policy %s is in partition %s", name,
				  baton_partition_name(owner));
			err = -EBUSY;
			goto out;
		}
		to->policies |= BIT(baton_place_index(place));
	}
	memcpy(to->cpus, arg->cpus, sizeof(to->cpus));
	empty = !memchr_inv(arg->cpus, 0, sizeof(arg->cpus));
	if (empty != !to->policies)
		err = refuse(arg, -EINVAL, "a partition has at least one CPU and one policy");
	else if (empty && !id)
		err = refuse(arg, -ENOENT, "there is no such partition");
	else if (!empty)
		err = check_cpus(arg, id);
	if (!err && !id) {
		id = find("");
		if (!id)
			err = refuse(arg, -ENOSPC, "there are 16 partitions already");
	}
	if (err)
		goto out;
	to->id = id;
	arg->held = baton_hold_all(change_while_held, to);
	if (empty)
		names[id - 1][0] = 0;
	else
		strscpy(names[id - 1], arg->name, sizeof(names[id - 1]));
out:
	kfree(to);
	return err;
}

void baton_partition_info(struct baton_partition *arg)
{
	u32 index = arg->index, i, count = 0;
	struct change *is = kzalloc(sizeof(*is), GFP_KERNEL);

	memset(arg, 0, sizeof(*arg));
	arg->index = index;
	if (is && names[index][0]) {
		read_partition(index + 1, is);
		strscpy(arg->name, names[index], sizeof(arg->name));
		memcpy(arg->cpus, is->cpus, sizeof(arg->cpus));
		for (i = 0; i < BATON_MAX_POLICIES; i++)
			if (is->policies & BIT(i))
				strscpy(arg->policies[count++], baton_places[i].name,
					BATON_NAME_LEN);
	}
	kfree(is);
}

/*
 * Removes a policy that is not running and will be forgotten. A partition ends with its last
 * policy.
 */
void baton_partition_leave(const struct baton_place *place)
{
	u32 id = baton_core_partition_of_policy(baton_place_index(place));
	struct change *to;

	if (!id)
		return;
	to = kzalloc(sizeof(*to), GFP_KERNEL | __GFP_NOFAIL);
	read_partition(id, to);
	to->policies &= ~BIT(baton_place_index(place));
	if (!to->policies) {
		memset(to->cpus, 0, sizeof(to->cpus));
		names[id - 1][0] = 0;
	}
	baton_hold_all(change_while_held, to);
	kfree(to);
}

/*
 * Called before and after a switch. Before it, the policy that gets the tasks joins the partition
 * of the policy that has them. After it, the latter leaves the partition. All other CPUs are held,
 * and interrupts are off.
 */
void baton_partition_switch(const struct baton_place *from, const struct baton_place *to,
			    bool begin)
{
	/* too large for the stack; guarded by baton_control_mutex */
	static struct change change;
	u32 id = baton_core_partition_of_policy(baton_place_index(from));

	if (!id)
		return;
	read_partition(id, &change);
	change.policies |= BIT(baton_place_index(to));
	if (!begin)
		change.policies &= ~BIT(baton_place_index(from));
	change_while_held(&change);
}
