# SPDX-License-Identifier: GPL-2.0-only
# Made from policy/abi by `cargo xtask header`: change it there.
"""The structures and numbers that Baton's clients in Python share with the kernel."""

import ctypes

ABI = 7
NAME_LEN = 32
OPTIONS_LEN = 256
MAX_POLICIES = 16
AGENT_SHARED = 1099511627776
AGENT_TASK_MEMBER = (1 << 0)
AGENT_TASK_AGENT = (1 << 1)
AGENT_TASK_HELD = (1 << 2)
AGENT_STANDBY = 256
AGENT_MIN_ENTRIES = 64
AGENT_ENTRIES = 1024
AGENT_MAX_ENTRIES = 65536
ENCLAVE_MIN_LIMIT_MS = 20
ENCLAVE_LIMIT_MS = 1000
ENCLAVE_MAX_LIMIT_MS = 60000
AGENT_KICK_AGENT = 16384
AGENT_TOGETHER = (1 << 0)
AGENT_CPUS_AT_ONCE = 64
MODULE_LEN = 64
CHANGES_KEPT = 8
MAX_PARTITIONS = 16
CPU_WORDS = 64
MAX_RULES = 64
TURNS_MIN = (1 << 16)
TURNS_MAX = (1 << 30)
REFUSED_PLACES = 256
MEASURE_MAX_MS = 3600000
CALL_CLASSES = 132
HINT_WORDS = 6
HINTS_MIN_ENTRIES = 16
HINTS_MAX_ENTRIES = 4096
HINTS_AT_ONCE = 16
MAX_ATTRIBUTES = 5
MAX_GRANTS = 64
GRANT_USER = (1 << 0)
GRANT_GROUP = (1 << 1)
GRANT_CGROUP = (1 << 2)
GRANT_ALL = 7
PICK_NONE = 0
PICK_KEEP = 1
MAX_KICKS = 4
MAX_LOCKS = 31
KICK_IDLE = 0
KICK_PREEMPT = 32768
F_WAKEUP = (1 << 0)
F_RESTORE = (1 << 1)
F_FORK = (1 << 2)
F_PREV_RUNNABLE = (1 << 3)
F_SYNC = (1 << 4)
SELECT_DIRECT = 4294967296
MESSAGE_LEN = 160
EV_BLOCKED = (1 << 0)
EV_TICK = (1 << 1)
EV_IDLE = (1 << 2)
EV_BALANCE = (1 << 3)
EV_ALL = 15
EV_NO_SELECT = (1 << 4)
TRANSACTION_STATE_EMPTY = 0
TRANSACTION_STATE_READY = 1
TRANSACTION_STATE_CLAIMED = 2
TRANSACTION_STATE_DONE = 3
COMMIT_COMPLETE = 0
COMMIT_STALE = 1
COMMIT_NOT_FOUND = 2
COMMIT_NOT_ALLOWED = 3
COMMIT_CPU_OFFLINE = 4
COMMIT_NOTHING_TO_KEEP = 5
COMMIT_BUSY = 6
COMMIT_NO_AGENT = 7
COMMIT_NOT_ALONE = 8
ENCLAVE_ACT_READ = 0
ENCLAVE_ACT_CREATE = 1
ENCLAVE_ACT_DESTROY = 2
ENCLAVE_ACT_DISMISS = 3
POLICY_STATE_ABSENT = 0
POLICY_STATE_REGISTERED = 1
POLICY_STATE_RUNNING = 2
POLICY_STATE_FAULTED = 3
CHANGE_KIND_NONE = 0
CHANGE_KIND_UPGRADE = 1
CHANGE_KIND_ROLLBACK = 2
CHANGE_KIND_FAULT_ROLLBACK = 3
RULE_ACT_READ = 0
RULE_ACT_ASSIGN = 1
RULE_ACT_APPLY = 2
RECORD_END_NONE = 0
RECORD_END_STOPPED = 1
RECORD_END_FULL = 2
RECORD_END_UNLOADED = 3
RECORD_END_REPLACED = 4
RECORD_END_FAULT = 5
RECORD_HOW_LOSSY = 0
RECORD_HOW_LOSSLESS = 1
RECORD_HOW_FLIGHT = 2
RECORD_HOW_FAULT = 3
HINTS_END_NONE = 0
HINTS_END_UNLOADED = 1
HINTS_END_REPLACED = 2
HINTS_END_FAULT = 3
HINTS_END_REVOKED = 4
HINTS_END_GONE = 5
HINT_ANSWER_TAKEN = 0
HINT_ANSWER_MALFORMED = 1
HINT_ANSWER_THREAD = 2
HINT_ANSWER_NOT_MEMBER = 3
HINT_ANSWER_STOPPED = 4
REPLY_ANSWER_SENT = 0
REPLY_ANSWER_NO_QUEUE = 1
REPLY_ANSWER_FULL = 2
ATTRIBUTE_TAG_DESCRIBE = 1
ATTRIBUTE_TAG_GET = 2
ATTRIBUTE_TAG_SET = 3
ATTRIBUTE_ANSWER_SET = 0
ATTRIBUTE_ANSWER_NOT_YET = 1
ATTRIBUTE_ANSWER_RANGE = 2
ATTRIBUTE_ANSWER_REFUSED = 3
ATTRIBUTE_UNIT_NONE = 0
ATTRIBUTE_UNIT_TIME = 1
GRANT_ACT_READ = 0
GRANT_ACT_GRANT = 1
GRANT_ACT_REVOKE = 2
REFUSAL_STALE = 1
REFUSAL_FOREIGN = 2
REFUSAL_NOT_ALLOWED = 3
REFUSAL_CPU_OFFLINE = 4
REFUSAL_NOTHING_TO_KEEP = 5
METHOD_NONE = 0
METHOD_CREATE = 1
METHOD_DESTROY = 2
METHOD_SELECT_TASK_RQ = 3
METHOD_TASK_NEW = 4
METHOD_TASK_WAKEUP = 5
METHOD_TASK_PREEMPT = 6
METHOD_TASK_YIELD = 7
METHOD_TASK_RESTORED = 8
METHOD_PICK_NEXT_TASK = 9
METHOD_NEWLY_IDLE = 10
METHOD_PICK_REFUSED = 11
METHOD_BALANCE = 12
METHOD_TASK_BLOCKED = 13
METHOD_TASK_DEQUEUED = 14
METHOD_TASK_DEPARTED = 15
METHOD_TASK_DEAD = 16
METHOD_TASK_AFFINITY_CHANGED = 17
METHOD_TASK_PRIO_CHANGED = 18
METHOD_TASK_TICK = 19
METHOD_TIMER = 20
METHOD_CPU_ONLINE = 21
METHOD_CPU_OFFLINE = 22
METHOD_ENTER_IDLE = 23
METHOD_EXIT_IDLE = 24
METHOD_HINT = 25
METHOD_REREGISTER_PREPARE = 26
METHOD_REREGISTER_INIT = 27
METHOD_REREGISTER_DROP = 28
METHOD_REREGISTER_CONVERT = 29
METHOD_REREGISTER_TAKE = 30
METHOD_REREGISTER_SAVE = 31
METHOD_REREGISTER_LOAD = 32
METHOD_MAY_HAVE = 33
LANGUAGE_RUST = 0
LANGUAGE_C = 1
LANGUAGE_EVENTS = 2
FAULT_KIND_NONE = 0
FAULT_KIND_PANIC = 1
FAULT_KIND_OUT_OF_MEMORY = 2
FAULT_KIND_STACK_OVERFLOW = 3
FAULT_KIND_DEADLOCK = 4
FAULT_KIND_LOCK_TIMEOUT = 5
FAULT_KIND_LOST_TASK = 6
FAULT_KIND_STALL = 7
FAULT_KIND_REFUSAL_LOOP = 8
FAULT_KIND_AGENT_GONE = 9
FAULT_KIND_AGENT_STARVED = 10
FAULT_KIND_ENDLESS_LOOP = 11
IOC_CORE = 0xc028ba00
IOC_POLICY = 0xc410ba01
IOC_FAULT = 0xc208ba02
IOC_CPU = 0xc040ba03
IOC_START = 0xc1c8ba04
IOC_STOP = 0xc0c0ba05
IOC_ASSIGN = 0xc0c8ba06
IOC_TASK = 0xc02cba07
IOC_UPGRADE = 0xc290ba08
IOC_SWITCH = 0xc048ba09
IOC_ORDER = 0xc200ba0a
IOC_SHARE = 0xc024ba0b
IOC_PARTITION = 0xc4d0ba0c
IOC_RULE = 0xc030ba0d
IOC_RECORD = 0xc210ba0e
IOC_RECORD_TAKE = 0xc020ba0f
IOC_RECORD_STOP = 0xc020ba10
IOC_RECORD_CHECKPOINT = 0xc018ba11
IOC_GRANT = 0xc050ba12
IOC_REFUSED_CHANGE = 0xc0a0ba13
IOC_MEASURE = 0xc004ba14
IOC_CALLS = 0xc438ba15
ENCLAVE_IOC_SET = 0xc100ba18
HINTS_IOC_OPEN = 0xc128ba20
HINTS_IOC_SEND = 0xc040ba21
AGENT_IOC_ATTACH = 0xc250ba30
AGENT_IOC_TOPOLOGY = 0xc01cba31
AGENT_IOC_KICK = 0xc088ba32
AGENT_IOC_SERVE = 0xc008ba33
AGENT_IOC_WAIT = 0xc000ba34
AGENT_IOC_FAIL = 0xc110ba35
AGENT_IOC_COMMIT = 0xc018ba36
AGENT_IOC_LEAVE = 0xc000ba37
AGENT_IOC_REPLY = 0xc040ba38


class AgentHead(ctypes.Structure):
    _fields_ = [
        ("lost", ctypes.c_uint64),
        ("queued", ctypes.c_uint32),
        ("ended", ctypes.c_uint32),
        ("standby_taken", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32 * 11),
    ]


class AgentCpu(ctypes.Structure):
    _fields_ = [
        ("posted", ctypes.c_uint32),
        ("wants", ctypes.c_uint32),
        ("running", ctypes.c_uint32),
        ("online", ctypes.c_uint32),
        ("agent", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("picks", ctypes.c_uint64),
        ("stale", ctypes.c_uint64),
        ("unused", ctypes.c_uint64 * 3),
    ]


class AgentTask(ctypes.Structure):
    _fields_ = [
        ("token", ctypes.c_uint64),
        ("runtime", ctypes.c_uint64),
        ("sequence", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
        ("cpu", ctypes.c_int32),
        ("nice", ctypes.c_int32),
        ("reserved", ctypes.c_uint32 * 7),
    ]


class Message(ctypes.Structure):
    _fields_ = [
        ("now", ctypes.c_uint64),
        ("token", ctypes.c_uint64),
        ("runtime", ctypes.c_uint64),
        ("method", ctypes.c_uint16),
        ("flags", ctypes.c_uint16),
        ("sequence", ctypes.c_uint32),
        ("slot", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
        ("nice", ctypes.c_int32),
        ("cpu", ctypes.c_int32),
        ("waker", ctypes.c_int32),
        ("after", ctypes.c_uint32),
        ("after_named", ctypes.c_uint32),
        ("named_pid", ctypes.c_uint32),
    ]


class Transaction(ctypes.Structure):
    _fields_ = [
        ("state", ctypes.c_uint32),
        ("outcome", ctypes.c_uint32),
        ("token", ctypes.c_uint64),
        ("slice", ctypes.c_uint64),
        ("read", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32 * 9),
    ]


class Standby(ctypes.Structure):
    _fields_ = [
        ("offered", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32 * 15),
    ]


class Enclave(ctypes.Structure):
    _fields_ = [
        ("act", ctypes.c_uint32),
        ("index", ctypes.c_uint32),
        ("name", ctypes.c_char * NAME_LEN),
        ("entries", ctypes.c_uint32),
        ("limit", ctypes.c_uint32),
        ("agent", ctypes.c_uint32),
        ("queued", ctypes.c_uint32),
        ("attached", ctypes.c_uint64),
        ("posted", ctypes.c_uint64),
        ("lost", ctypes.c_uint64),
        ("picks", ctypes.c_uint64),
        ("stale", ctypes.c_uint64),
        ("message", ctypes.c_char * MESSAGE_LEN),
    ]


class StateType(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char * NAME_LEN),
        ("version", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("layout", ctypes.c_uint64),
    ]


class AgentAttach(ctypes.Structure):
    _fields_ = [
        ("abi", ctypes.c_uint32),
        ("events", ctypes.c_uint32),
        ("nr_cpus", ctypes.c_uint32),
        ("nr_slots", ctypes.c_uint32),
        ("entries", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("cpus", ctypes.c_uint64),
        ("tasks", ctypes.c_uint64),
        ("masks", ctypes.c_uint64),
        ("rings", ctypes.c_uint64),
        ("status_size", ctypes.c_uint64),
        ("standby", ctypes.c_uint64),
        ("shared_size", ctypes.c_uint64),
        ("options", ctypes.c_char * OPTIONS_LEN),
        ("hint_type", StateType),
        ("reply_type", StateType),
        ("message", ctypes.c_char * MESSAGE_LEN),
    ]


class Cpu(ctypes.Structure):
    _fields_ = [
        ("core", ctypes.c_uint32),
        ("llc", ctypes.c_uint32),
        ("node", ctypes.c_uint32),
        ("online", ctypes.c_uint32),
        ("cluster", ctypes.c_uint32),
    ]


class AgentTopology(ctypes.Structure):
    _fields_ = [
        ("cpu", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("place", Cpu),
    ]


class AgentKick(ctypes.Structure):
    _fields_ = [
        ("count", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("cpus", ctypes.c_uint16 * AGENT_CPUS_AT_ONCE),
    ]


class AgentCommit(ctypes.Structure):
    _fields_ = [
        ("token", ctypes.c_uint64),
        ("slice", ctypes.c_uint64),
        ("cpu", ctypes.c_uint16),
        ("reserved", ctypes.c_uint16),
        ("outcome", ctypes.c_uint32),
    ]


class AgentCommits(ctypes.Structure):
    _fields_ = [
        ("count", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("commits", ctypes.c_uint64),
        ("accepted", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class AgentServe(ctypes.Structure):
    _fields_ = [
        ("cpu", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class AgentFail(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_uint32),
        ("method", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
        ("line", ctypes.c_uint32),
        ("file", ctypes.c_uint8 * 96),
        ("message", ctypes.c_char * MESSAGE_LEN),
    ]


class Hint(ctypes.Structure):
    _fields_ = [
        ("tag", ctypes.c_uint32),
        ("thread", ctypes.c_uint32),
        ("words", ctypes.c_uint64 * HINT_WORDS),
    ]


class AgentReply(ctypes.Structure):
    _fields_ = [
        ("slot", ctypes.c_uint32),
        ("answer", ctypes.c_uint32),
        ("reply", Hint),
    ]


class CoreInfo(ctypes.Structure):
    _fields_ = [
        ("abi", ctypes.c_uint32),
        ("attached", ctypes.c_uint32),
        ("all", ctypes.c_uint32),
        ("nr_cpus", ctypes.c_uint32),
        ("max_tasks", ctypes.c_uint32),
        ("tasks", ctypes.c_uint32),
        ("no_slot", ctypes.c_uint64),
        ("default_policy", ctypes.c_uint32),
        ("stall_ms", ctypes.c_uint32),
    ]


class Change(ctypes.Structure):
    _fields_ = [
        ("now", ctypes.c_uint64),
        ("kind", ctypes.c_uint32),
        ("anew", ctypes.c_uint32),
        ("from_version", ctypes.c_uint32),
        ("to_version", ctypes.c_uint32),
        ("held", ctypes.c_uint64),
        ("policy", ctypes.c_uint64),
        ("core", ctypes.c_uint64),
        ("memory", ctypes.c_uint64),
    ]


class PolicyInfo(ctypes.Structure):
    _fields_ = [
        ("index", ctypes.c_uint32),
        ("state", ctypes.c_uint32),
        ("id", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("tasks", ctypes.c_uint32),
        ("queued", ctypes.c_uint32),
        ("rank", ctypes.c_uint32),
        ("share", ctypes.c_uint32),
        ("recording", ctypes.c_uint32),
        ("flight", ctypes.c_uint32),
        ("recorded", ctypes.c_uint32),
        ("language", ctypes.c_uint32),
        ("memory", ctypes.c_uint64),
        ("refusals", ctypes.c_uint64),
        ("faults", ctypes.c_uint64),
        ("name", ctypes.c_char * NAME_LEN),
        ("options", ctypes.c_char * OPTIONS_LEN),
        ("modules", ctypes.c_char * MODULE_LEN * 3),
        ("partition", ctypes.c_char * NAME_LEN),
        ("changes", ctypes.c_uint64),
        ("history", Change * CHANGES_KEPT),
    ]


class Upgrade(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char * NAME_LEN),
        ("options", ctypes.c_char * OPTIONS_LEN),
        ("rollback", ctypes.c_uint32),
        ("probation", ctypes.c_uint32),
        ("message", ctypes.c_char * MESSAGE_LEN),
        ("change", Change),
        ("running", StateType),
        ("state", StateType),
        ("older", StateType),
    ]


class Switch(ctypes.Structure):
    _fields_ = [
        ("from", ctypes.c_char * NAME_LEN),
        ("to", ctypes.c_char * NAME_LEN),
        ("held", ctypes.c_uint64),
    ]


class Order(ctypes.Structure):
    _fields_ = [
        ("names", ctypes.c_char * NAME_LEN * MAX_POLICIES),
    ]


class Share(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char * NAME_LEN),
        ("share", ctypes.c_uint32),
    ]


class Partition(ctypes.Structure):
    _fields_ = [
        ("set", ctypes.c_uint32),
        ("index", ctypes.c_uint32),
        ("name", ctypes.c_char * NAME_LEN),
        ("cpus", ctypes.c_uint64 * CPU_WORDS),
        ("policies", ctypes.c_char * NAME_LEN * MAX_POLICIES),
        ("message", ctypes.c_char * MESSAGE_LEN),
        ("held", ctypes.c_uint64),
    ]


class Rule(ctypes.Structure):
    _fields_ = [
        ("set", ctypes.c_uint32),
        ("index", ctypes.c_uint32),
        ("cgroup", ctypes.c_uint64),
        ("name", ctypes.c_char * NAME_LEN),
    ]


class Record(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char * NAME_LEN),
        ("blocks", ctypes.c_uint32),
        ("how", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("stamp_khz", ctypes.c_uint32),
        ("has_state", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("state_length", ctypes.c_uint64),
        ("state", StateType),
        ("options", ctypes.c_char * OPTIONS_LEN),
        ("message", ctypes.c_char * MESSAGE_LEN),
    ]


class RecordBlock(ctypes.Structure):
    _fields_ = [
        ("cpu", ctypes.c_uint32),
        ("block", ctypes.c_int32),
        ("end", ctypes.c_uint32),
        ("topology", Cpu),
    ]


class RecordCheckpoint(ctypes.Structure):
    _fields_ = [
        ("stamp", ctypes.c_uint64),
        ("at", ctypes.c_uint64),
        ("length", ctypes.c_uint64),
    ]


class Event(ctypes.Structure):
    _fields_ = [
        ("now", ctypes.c_uint64),
        ("method", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
    ]


class Fault(ctypes.Structure):
    _fields_ = [
        ("index", ctypes.c_uint32),
        ("kind", ctypes.c_uint32),
        ("method", ctypes.c_uint32),
        ("cpu", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
        ("line", ctypes.c_uint32),
        ("now", ctypes.c_uint64),
        ("serial", ctypes.c_uint64),
        ("ip", ctypes.c_uint64),
        ("policy", ctypes.c_char * NAME_LEN),
        ("comm", ctypes.c_uint8 * 16),
        ("file", ctypes.c_uint8 * 96),
        ("message", ctypes.c_char * MESSAGE_LEN),
        ("nr_events", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("events", Event * 10),
    ]


class CpuInfo(ctypes.Structure):
    _fields_ = [
        ("cpu", ctypes.c_uint32),
        ("online", ctypes.c_uint32),
        ("dispatches", ctypes.c_uint64),
        ("picks", ctypes.c_uint64),
        ("enqueues", ctypes.c_uint64),
        ("directs", ctypes.c_uint64),
        ("refusals", ctypes.c_uint64),
        ("fallbacks", ctypes.c_uint64),
        ("timers", ctypes.c_uint64),
    ]


class Start(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char * NAME_LEN),
        ("turns", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("options", ctypes.c_char * OPTIONS_LEN),
        ("message", ctypes.c_char * MESSAGE_LEN),
    ]


class Stop(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char * NAME_LEN),
        ("message", ctypes.c_char * MESSAGE_LEN),
    ]


class Assign(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint32),
        ("set_class", ctypes.c_uint32),
        ("name", ctypes.c_char * NAME_LEN),
        ("message", ctypes.c_char * MESSAGE_LEN),
    ]


class TaskInfo(ctypes.Structure):
    _fields_ = [
        ("slot", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("state", ctypes.c_uint32),
        ("cpu", ctypes.c_int32),
        ("nice", ctypes.c_int32),
        ("comm", ctypes.c_uint8 * 16),
        ("wanted", ctypes.c_uint32),
    ]


class RefusedChange(ctypes.Structure):
    _fields_ = [
        ("place", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("line", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
        ("times", ctypes.c_uint64),
        ("handler", ctypes.c_uint8 * 24),
        ("from", ctypes.c_uint8 * 16),
        ("to", ctypes.c_uint8 * 16),
        ("why", ctypes.c_uint8 * 80),
    ]


class Measure(ctypes.Structure):
    _fields_ = [
        ("ms", ctypes.c_uint32),
    ]


class Calls(ctypes.Structure):
    _fields_ = [
        ("policy", ctypes.c_uint32),
        ("method", ctypes.c_uint32),
        ("total", ctypes.c_uint64),
        ("longest", ctypes.c_uint64),
        ("classes", ctypes.c_uint64 * CALL_CLASSES),
    ]


class HintsEntry(ctypes.Structure):
    _fields_ = [
        ("sequence", ctypes.c_uint32),
        ("tag", ctypes.c_uint32),
        ("thread", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("words", ctypes.c_uint64 * HINT_WORDS),
    ]


class HintsHead(ctypes.Structure):
    _fields_ = [
        ("end", ctypes.c_uint32),
        ("entries", ctypes.c_uint32),
        ("refused", ctypes.c_uint32),
        ("lost", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32 * 12),
    ]


class HintsOpen(ctypes.Structure):
    _fields_ = [
        ("policy", ctypes.c_char * NAME_LEN),
        ("hint", StateType),
        ("reply", StateType),
        ("entries", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("message", ctypes.c_char * MESSAGE_LEN),
    ]


class HintsSend(ctypes.Structure):
    _fields_ = [
        ("hint", Hint),
        ("answer", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class Grant(ctypes.Structure):
    _fields_ = [
        ("set", ctypes.c_uint32),
        ("index", ctypes.c_uint32),
        ("name", ctypes.c_char * NAME_LEN),
        ("who", ctypes.c_uint32),
        ("user", ctypes.c_uint32),
        ("group", ctypes.c_uint32),
        ("entries", ctypes.c_uint32),
        ("cgroup", ctypes.c_uint64),
        ("queues", ctypes.c_uint32),
        ("any_thread", ctypes.c_uint32),
        ("open", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class Ctx(ctypes.Structure):
    _fields_ = [
        ("now", ctypes.c_uint64),
        ("task", ctypes.c_uint64),
        ("runtime", ctypes.c_uint64),
        ("slice", ctypes.c_uint64),
        ("cpu", ctypes.c_int32),
        ("flags", ctypes.c_uint16),
        ("nr_kicks", ctypes.c_uint16),
        ("kicks", ctypes.c_uint16 * MAX_KICKS),
    ]


class Task(ctypes.Structure):
    _fields_ = [
        ("slot", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
        ("cpu", ctypes.c_int32),
        ("nice", ctypes.c_int32),
        ("runtime", ctypes.c_uint64),
    ]


class Wake(ctypes.Structure):
    _fields_ = [
        ("prev_cpu", ctypes.c_int32),
        ("waker_cpu", ctypes.c_int32),
        ("flags", ctypes.c_uint16),
    ]
