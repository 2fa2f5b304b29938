// SPDX-License-Identifier: GPL-2.0-only
/*
 * A plugin of QEMU that counts the instructions of each CPU of a guest, and lets the guest read
 * them. QEMU's own count (-icount) is of all CPUs together, and lets one CPU run at a time.
 *
 * A program in the guest asks by an instruction that does nothing else: BATON_COUNTER below, with
 * the request in %rdi and its arguments in %rsi and %rdx. The answer comes in %rax. Where there is
 * no plugin, %rax stays as it is.
 *
 * The interface of plugins has no header in Debian. What is used of it is declared here, for the
 * version below. A QEMU that has changed it refuses the plugin, and says so.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* nopl BATON_COUNTER(%rax,%rax,1): see bench/src/counter.rs */
static const uint8_t MARK[] = { 0x0f, 0x1f, 0x84, 0x00, 'B', 't', 'o', 'n' };

/* Requests. */
enum {
	/* The instructions that CPU %rsi has executed. */
	READ = 1,
	/*
	 * From here on, the instructions from the one at address %rsi to the one at %rdx are
	 * counted, each time that a CPU executes the first and then the second.
	 */
	SPAN = 2,
	/* How often both were executed, and how many instructions were between them. */
	SPAN_TIMES = 3,
	SPAN_TOTAL = 4,
};

/* --- QEMU's, version 7: include/plugins/qemu-plugin.h --- */

EXPORT int qemu_plugin_version = 7;

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_scoreboard;
struct qemu_plugin_register;

typedef struct {
	struct qemu_plugin_scoreboard *score;
	size_t offset;
} qemu_plugin_u64;

typedef struct {
	struct qemu_plugin_register *handle;
	const char *name;
	const char *feature;
	bool is_readonly;
} qemu_plugin_reg_descriptor;

enum { CB_NO_REGS, CB_R_REGS, CB_RW_REGS };
enum { INLINE_ADD_U64 };

/* GLib's, with which QEMU is linked. */
typedef struct {
	uint8_t *data;
	unsigned int len;
} GByteArray;
typedef GByteArray GArray;

GByteArray *g_byte_array_new(void);
GByteArray *g_byte_array_append(GByteArray *array, const uint8_t *data, unsigned int len);
void g_byte_array_unref(GByteArray *array);

struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t element_size);
int qemu_plugin_num_vcpus(void);
uint64_t qemu_plugin_u64_get(qemu_plugin_u64 entry, unsigned int cpu);
GArray *qemu_plugin_get_registers(void);
bool qemu_plugin_read_register(struct qemu_plugin_register *handle, GByteArray *to);
bool qemu_plugin_write_register(struct qemu_plugin_register *handle, GByteArray *from);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t at);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to, size_t size);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
void qemu_plugin_register_vcpu_init_cb(qemu_plugin_id_t id, void (*cb)(unsigned int, void *),
				       void *userdata);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
					   void (*cb)(struct qemu_plugin_tb *, void *),
					   void *userdata);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn,
					    void (*cb)(unsigned int, void *), int flags,
					    void *userdata);
void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(struct qemu_plugin_insn *insn, int op,
							 qemu_plugin_u64 entry, uint64_t value);
void qemu_plugin_reset(qemu_plugin_id_t id, void (*cb)(void *), void *userdata);

/* --- The plugin --- */

#define MAX_CPUS 255

static qemu_plugin_id_t own;
/* The instructions of each CPU. Each CPU's thread adds to its own. */
static qemu_plugin_u64 counts;
/* Registers, set as the first CPU begins. */
static struct qemu_plugin_register *rax, *rdi, *rsi, *rdx;

/* Addresses. Written while no CPU runs, and read by translations. */
static uint64_t from, to;
/* Those of the last SPAN. The guest makes one such request at a time. */
static uint64_t next_from, next_to;
/* By CPU, and written by its thread alone. */
static struct {
	uint64_t began;	/* its count at the first address; 0 if it is not between the two */
	uint64_t times, total;
} spans[MAX_CPUS];

static uint64_t read_register(struct qemu_plugin_register *handle)
{
	GByteArray *bytes = g_byte_array_new();
	uint64_t value = 0;

	if (qemu_plugin_read_register(handle, bytes) && bytes->len >= sizeof(value))
		memcpy(&value, bytes->data, sizeof(value));
	g_byte_array_unref(bytes);
	return value;
}

static void write_register(struct qemu_plugin_register *handle, uint64_t value)
{
	GByteArray *bytes = g_byte_array_new();

	g_byte_array_append(bytes, (const uint8_t *)&value, sizeof(value));
	qemu_plugin_write_register(handle, bytes);
	g_byte_array_unref(bytes);
}

static void at_begin(unsigned int cpu, void *unused)
{
	spans[cpu].began = qemu_plugin_u64_get(counts, cpu);
}

static void at_end(unsigned int cpu, void *unused)
{
	if (!spans[cpu].began)
		return;
	spans[cpu].times++;
	spans[cpu].total += qemu_plugin_u64_get(counts, cpu) - spans[cpu].began;
	spans[cpu].began = 0;
}

static void begin_span(void *unused);

/* A request of the guest. */
static void at_mark(unsigned int cpu, void *unused)
{
	uint64_t request = read_register(rdi), result = 0;
	unsigned int i;

	switch (request) {
	case READ:
		i = read_register(rsi);
		if (i < (unsigned int)qemu_plugin_num_vcpus())
			result = qemu_plugin_u64_get(counts, i);
		break;
	case SPAN:
		next_from = read_register(rsi);
		next_to = read_register(rdx);
		/* So that what was translated before is translated again. */
		qemu_plugin_reset(own, begin_span, NULL);
		break;
	case SPAN_TIMES:
	case SPAN_TOTAL:
		for (i = 0; i < MAX_CPUS; i++)
			result += request == SPAN_TIMES ? spans[i].times : spans[i].total;
		break;
	}
	write_register(rax, result);
}

static void at_translation(struct qemu_plugin_tb *tb, void *unused)
{
	uint8_t data[sizeof(MARK)];
	size_t i;

	for (i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint64_t address = qemu_plugin_insn_vaddr(insn);

		if (address == from)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, at_begin, CB_NO_REGS, NULL);
		if (address == to)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, at_end, CB_NO_REGS, NULL);
		if (qemu_plugin_insn_data(insn, data, sizeof(data)) == sizeof(MARK) &&
		    !memcmp(data, MARK, sizeof(MARK)))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, at_mark, CB_RW_REGS, NULL);
		qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(insn, INLINE_ADD_U64, counts,
								    1);
	}
}

static void at_cpu(unsigned int cpu, void *unused)
{
	const GArray *all = qemu_plugin_get_registers();
	const qemu_plugin_reg_descriptor *found = (const void *)all->data;
	unsigned int i;

	for (i = 0; i < all->len; i++) {
		if (!strcmp(found[i].name, "rax"))
			rax = found[i].handle;
		else if (!strcmp(found[i].name, "rdi"))
			rdi = found[i].handle;
		else if (!strcmp(found[i].name, "rsi"))
			rsi = found[i].handle;
		else if (!strcmp(found[i].name, "rdx"))
			rdx = found[i].handle;
	}
}

static void register_all(void *unused)
{
	qemu_plugin_register_vcpu_init_cb(own, at_cpu, NULL);
	qemu_plugin_register_vcpu_tb_trans_cb(own, at_translation, NULL);
}

/* No CPU runs, and no translation is left. */
static void begin_span(void *unused)
{
	from = next_from;
	to = next_to;
	memset(spans, 0, sizeof(spans));
	register_all(NULL);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv)
{
	own = id;
	counts.score = qemu_plugin_scoreboard_new(sizeof(uint64_t));
	register_all(NULL);
	return 0;
}
