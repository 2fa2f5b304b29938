// SPDX-License-Identifier: GPL-2.0-only
/*
 * Input of a policy's creation: the description of the machine, and the options.
 *
 * Process context, under the control mutex.
 */
#include <linux/cpu.h>
#include <linux/slab.h>
#include <linux/topology.h>

#include "core.h"
#include "place.h"

static bool share_core(int a, int b)
{
	return topology_physical_package_id(a) == topology_physical_package_id(b) &&
	       topology_core_id(a) == topology_core_id(b);
}

static bool share_llc(int a, int b)
{
	return cpu_data(a).topo.llc_id == cpu_data(b).topo.llc_id;
}

/* Not every machine tells which CPUs share a second-level cache: then those of a core do. */
static bool share_cluster(int a, int b)
{
	return share_core(a, b) ||
	       (share_llc(a, b) && cpu_data(a).topo.l2c_id != BAD_APICID &&
		cpu_data(a).topo.l2c_id == cpu_data(b).topo.l2c_id);
}

/*
 * Fills `cpus` with the topology of each CPU, with dense ids for cores and caches. To a policy, the
 * CPUs of other partitions are offline.
 */
static void read_topology(struct baton_cpu *cpus, u32 partition)
{
	u32 cores = 0, llcs = 0, clusters = 0;
	int cpu, other;

	for_each_possible_cpu(cpu) {
		struct baton_cpu *at = &cpus[cpu];

		at->core = cores;
		at->llc = llcs;
		at->cluster = clusters;
		/* As of the first CPU with which it shares them. */
		for_each_possible_cpu(other) {
			if (other >= cpu)
				break;
			if (at->core == cores && share_core(cpu, other))
				at->core = cpus[other].core;
			if (at->llc == llcs && share_llc(cpu, other))
				at->llc = cpus[other].llc;
			if (at->cluster == clusters && share_cluster(cpu, other))
				at->cluster = cpus[other].cluster;
		}
		cores += at->core == cores;
		llcs += at->llc == llcs;
		clusters += at->cluster == clusters;
		at->node = max(cpu_to_node(cpu), 0);
		at->online = cpu_online(cpu) && baton_core_partition_of_cpu(cpu) == partition;
	}
}

/* Formats the message and place of a panic in the creation of a policy. */
void baton_describe_panic(char *text, size_t size)
{
	const struct baton_last_words *words = baton_creating_last_words();

	if (baton_creating_frame()->ended_by == BATON_FAULT_KIND_ENDLESS_LOOP)
		scnprintf(text, size, "%s, at %pS", words->message, (void *)words->ip);
	else if (words->line)
		scnprintf(text, size, "%s, %s:%u", words->message, words->file, words->line);
	else
		scnprintf(text, size, "%s", words->message);
}

/*
 * Calls `destroy` of a version of a policy. A panic in it is printed to the kernel's log, and
 * copied to `message` (BATON_MESSAGE_LEN bytes) unless that is NULL. The memory of the version
 * remains to be freed. Under the control mutex; process context.
 */
void baton_unmake(struct baton_place *place, const struct baton_version *version, char *message)
{
	char words[BATON_MESSAGE_LEN];

	/* The function has no result, so the value returned by baton_make() may be anything. */
	baton_creating_frame()->ended_by = BATON_FAULT_KIND_NONE;
	baton_make(place, version->ops.destroy, version->this, NULL);
	if (baton_creating_frame()->ended_by == BATON_FAULT_KIND_NONE)
		return;
	baton_describe_panic(words, sizeof(words));
	pr_notice("baton: policy %s failed when it was destroyed: %s\n", place->name, words);
	if (message)
		strscpy(message, words, BATON_MESSAGE_LEN);
}

/* Prepares the input for the creation of a policy. Process context. */
int baton_begin_create(const struct baton_place *place, struct baton_creation *creation,
		       const char *options, char *message)
{
	struct baton_core_info core = {};

	creation->cpus = kvcalloc(nr_cpu_ids, sizeof(*creation->cpus), GFP_KERNEL);
	if (!creation->cpus)
		return -ENOMEM;
	cpus_read_lock();
	read_topology(creation->cpus, baton_core_partition_of_policy(baton_place_index(place)));
	cpus_read_unlock();
	baton_core_info(&core);
	message[0] = 0;
	creation->env = (struct baton_env){
		.cpus = creation->cpus,
		.nr_cpus = nr_cpu_ids,
		.max_tasks = core.max_tasks,
		.options = options,
		.message = message,
	};
	return 0;
}

void baton_end_create(struct baton_creation *creation)
{
	kvfree(creation->cpus);
}
