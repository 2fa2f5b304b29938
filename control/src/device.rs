// SPDX-License-Identifier: GPL-2.0-only
//! The control device: each request of policy/abi/src/requests.rs as one typed call.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

use baton_abi::*;
use baton_trace::BLOCK_SIZE;
use rustix::io::Errno;
use rustix::ioctl::{self, Opcode};
use rustix::mm::{self, MapFlags, ProtFlags};

use crate::cpulist::CpuList;
use crate::error::{Error, Result};
use crate::status::Partition;

const PATH: &str = "/dev/baton";

/// The open control device. Only root can open it.
pub struct Device(File);

/// Why a policy was not started, or was not given a task.
pub struct Refused {
    pub errno: Errno,
    /// The policy's message; empty if there is none.
    pub message: String,
}

/// Why a partition was not changed.
pub struct Unset {
    pub errno: Errno,
    /// The core's message; empty if there is none.
    pub message: String,
}

impl Device {
    /// The device of the loaded core. `None` if no core is loaded.
    pub fn open_if_loaded() -> Result<Option<Self>> {
        match OpenOptions::new().read(true).write(true).open(PATH) {
            Ok(file) => {
                let device = Self(file);
                let abi = device.core()?.abi;
                if abi == BATON_ABI {
                    return Ok(Some(device));
                }
                Err(Error::user(
                    format!(
                        "the core in the kernel has version {abi} of the interface, this command \
                         version {BATON_ABI}"
                    ),
                    "unload the core with the command it came with (baton unload --everything), or \
                     restart the machine",
                ))
            }
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) if e.kind() == ErrorKind::PermissionDenied => Err(Error::environment(
                format!("{PATH} is for root only"),
                "run this as root (sudo)",
            )),
            Err(e) => Err(Error::environment(
                format!("{PATH} cannot be opened: {e}"),
                "see the kernel's log (dmesg)",
            )),
        }
    }

    /// The device of the loaded core. An error if no core is loaded.
    pub fn open() -> Result<Self> {
        Self::open_if_loaded()?.ok_or_else(|| {
            Error::user(
                "Baton's core is not loaded",
                "load a policy first: baton load POLICY",
            )
        })
    }

    /// `T` must be the structure that belongs to the request.
    fn request<const REQUEST: Opcode, T: Copy>(
        &self,
        value: &mut T,
    ) -> std::result::Result<(), Errno> {
        // SAFETY: Sized-request. The requests above pair each number with its structure, whose size
        // is part of the number. The kernel writes no more than that. Every bit pattern is a value
        // of these structures of integers.
        unsafe { ioctl::ioctl(&self.0, ioctl::Updater::<REQUEST, T>::new(value)) }
    }

    /// A request that fails only because of an error in Baton.
    fn ask<const REQUEST: Opcode, T: Copy>(&self, mut value: T, what: &str) -> Result<T> {
        match self.request::<REQUEST, T>(&mut value) {
            Ok(()) => Ok(value),
            Err(Errno::PERM) => Err(Error::environment(
                "the core is for root only",
                "run this as \
                root (sudo)",
            )),
            Err(Errno::NOTTY) => Err(Error::user(
                format!(
                    "the core in the kernel does not know the request for {what}: it is of \
                    another version"
                ),
                "unload it with the command it came with, or restart the machine",
            )),
            Err(e) => Err(Error::baton(format!(
                "the core does not report {what}: {e}"
            ))),
        }
    }

    pub fn core(&self) -> Result<BatonCoreInfo> {
        self.ask::<BATON_IOC_CORE, _>(BatonCoreInfo::default(), "its state")
    }

    /// All loaded policies, in the order in which they are asked.
    pub fn policies(&self) -> Result<Vec<BatonPolicyInfo>> {
        let mut found = Vec::new();
        for index in 0..BATON_MAX_POLICIES as u32 {
            let info = self.ask::<BATON_IOC_POLICY, _>(no_policy(index), "a policy")?;
            if info.id != 0 {
                found.push(info);
            }
        }
        found.sort_by_key(|info| info.rank);
        Ok(found)
    }

    /// The policy of that name, if it is loaded.
    pub fn policy(&self, name: &str) -> Result<Option<BatonPolicyInfo>> {
        Ok(self.policies()?.into_iter().find(|p| text(&p.name) == name))
    }

    /// The last fault of the policy at `index`; `None` if it had none.
    pub fn fault(&self, index: u32) -> Result<Option<BatonFault>> {
        let fault = self.ask::<BATON_IOC_FAULT, _>(no_fault(index), "a fault")?;
        Ok((fault.kind != 0).then_some(fault))
    }

    pub fn cpu(&self, cpu: u32) -> Result<BatonCpuInfo> {
        self.ask::<BATON_IOC_CPU, _>(
            BatonCpuInfo {
                cpu,
                ..Default::default()
            },
            "a CPU",
        )
    }

    /// Has the calls of all policies measured for so many ms from now.
    pub fn measure(&self, ms: u32) -> Result<()> {
        self.ask::<BATON_IOC_MEASURE, _>(BatonMeasure { ms }, "a measurement")
            .map(drop)
    }

    /// The measured calls of a method of a policy.
    pub fn calls(&self, policy: u32, method: BatonMethod) -> Result<BatonCalls> {
        let ask = BatonCalls {
            policy,
            method: method as u32,
            total: 0,
            longest: 0,
            classes: [0; BATON_CALL_CLASSES],
        };
        self.ask::<BATON_IOC_CALLS, _>(ask, "measured calls")
    }

    /// The places in policies in C at which changes of threads' states were refused.
    pub fn refused_changes(&self) -> Result<Vec<BatonRefusedChange>> {
        let (mut found, mut place) = (Vec::new(), 0);
        while place < BATON_REFUSED_PLACES {
            let ask = BatonRefusedChange {
                place,
                policy: 0,
                line: 0,
                pid: 0,
                times: 0,
                handler: [0; 24],
                from: [0; 16],
                to: [0; 16],
                why: [0; 80],
            };
            let change = self.ask::<BATON_IOC_REFUSED_CHANGE, _>(ask, "a refused change")?;
            if change.times == 0 {
                break;
            }
            place = change.place + 1;
            found.push(change);
        }
        Ok(found)
    }

    /// All tasks that have a slot.
    pub fn tasks(&self) -> Result<Vec<BatonTaskInfo>> {
        let (mut found, mut slot) = (Vec::new(), 0);
        let slots = self.core()?.max_tasks;
        while slot < slots {
            let info = self.ask::<BATON_IOC_TASK, _>(
                BatonTaskInfo {
                    slot,
                    ..Default::default()
                },
                "a task",
            )?;
            if info.pid == 0 {
                break;
            }
            slot = info.slot + 1;
            found.push(info);
        }
        Ok(found)
    }

    /// Creates a loaded policy. Its calls are granted so many turns of loops; 0 for as many as at its
    /// last start, or the default.
    pub fn start(&self, name: &str, options: &str, turns: u32) -> std::result::Result<(), Refused> {
        let mut start = BatonStart {
            name: field(name),
            turns,
            reserved: 0,
            options: field(options),
            message: [0; BATON_MESSAGE_LEN],
        };
        self.request::<BATON_IOC_START, _>(&mut start)
            .map_err(|errno| Refused {
                errno,
                message: text(&start.message),
            })
    }

    /// Stops a policy. Returns its message if it failed in its `Drop`; it is stopped all the same.
    pub fn stop(&self, name: &str) -> std::result::Result<Option<String>, Errno> {
        let mut stop = BatonStop {
            name: field(name),
            message: [0; BATON_MESSAGE_LEN],
        };
        self.request::<BATON_IOC_STOP, _>(&mut stop)?;
        Ok(Some(text(&stop.message)).filter(|message| !message.is_empty()))
    }

    /// Replaces the running version of a policy by the version that is loaded as the next one, or,
    /// with `rollback`, by the previous one. The answer contains what was done, or why it was not.
    pub fn upgrade(
        &self,
        name: &str,
        options: &str,
        rollback: bool,
        probation_ms: u32,
    ) -> (std::result::Result<(), Errno>, BatonUpgrade) {
        let mut upgrade = BatonUpgrade {
            name: field(name),
            options: field(options),
            rollback: rollback.into(),
            probation: probation_ms,
            message: [0; BATON_MESSAGE_LEN],
            change: BatonChange::default(),
            running: BatonStateType::NONE,
            state: BatonStateType::NONE,
            older: BatonStateType::NONE,
        };
        (self.request::<BATON_IOC_UPGRADE, _>(&mut upgrade), upgrade)
    }

    /// Gives all tasks of one policy to another. Returns how long CPUs were held, ns.
    pub fn switch(&self, from: &str, to: &str) -> std::result::Result<u64, Errno> {
        let mut switch = BatonSwitch {
            from: field(from),
            to: field(to),
            held: 0,
        };
        self.request::<BATON_IOC_SWITCH, _>(&mut switch)
            .map(|()| switch.held)
    }

    /// Puts these policies first, in this order. At most 16.
    pub fn set_order(&self, first: &[String]) -> std::result::Result<(), Errno> {
        let mut order = BatonOrder {
            names: [[0; BATON_NAME_LEN]; BATON_MAX_POLICIES],
        };
        order
            .names
            .iter_mut()
            .zip(first)
            .for_each(|(place, name)| *place = field(name));
        self.request::<BATON_IOC_ORDER, _>(&mut order)
    }

    /// See [`BatonRecordHow`]. Returns what the core reports about the recording. `from_state`: a
    /// policy that cannot save its state is refused.
    pub fn record(
        &self,
        policy: &str,
        blocks: u32,
        how: BatonRecordHow,
        from_state: bool,
    ) -> std::result::Result<BatonRecord, Refused> {
        let mut about = BatonRecord {
            name: field(policy),
            blocks,
            how: how as u32,
            version: 0,
            stamp_khz: 0,
            has_state: from_state.into(),
            reserved: 0,
            state_length: 0,
            state: BatonStateType::NONE,
            options: [0; BATON_OPTIONS_LEN],
            message: [0; BATON_MESSAGE_LEN],
        };
        match self.request::<BATON_IOC_RECORD, _>(&mut about) {
            Ok(()) => Ok(about),
            Err(errno) => Err(Refused {
                errno,
                message: text(&about.message),
            }),
        }
    }

    /// Guarantees a policy a share of each CPU's time, in percent.
    pub fn set_share(&self, policy: &str, percent: u32) -> std::result::Result<(), Errno> {
        self.request::<BATON_IOC_SHARE, _>(&mut BatonShare {
            name: field(policy),
            share: percent,
        })
    }

    /// All partitions.
    pub fn partitions(&self) -> Result<Vec<Partition>> {
        let mut found = Vec::new();
        for index in 0..BATON_MAX_PARTITIONS as u32 {
            let info = self.ask::<BATON_IOC_PARTITION, _>(
                BatonPartition {
                    index,
                    ..no_partition()
                },
                "a partition",
            )?;
            if info.name[0] != 0 {
                let policies = info
                    .policies
                    .iter()
                    .filter(|name| name[0] != 0)
                    .map(|name| text(name))
                    .collect();
                found.push(Partition {
                    name: text(&info.name),
                    cpus: CpuList::from_words(&info.cpus),
                    policies,
                });
            }
        }
        Ok(found)
    }

    /// Sets the CPUs and policies of a partition. Without CPUs and policies the partition is ended.
    /// Returns how long CPUs were held, ns.
    pub fn set_partition(
        &self,
        name: &str,
        cpus: &CpuList,
        policies: &[String],
    ) -> std::result::Result<u64, Unset> {
        let mut partition = BatonPartition {
            set: 1,
            name: field(name),
            cpus: cpus.words(),
            ..no_partition()
        };
        partition
            .policies
            .iter_mut()
            .zip(policies)
            .for_each(|(place, name)| *place = field(name));
        match self.request::<BATON_IOC_PARTITION, _>(&mut partition) {
            Ok(()) => Ok(partition.held),
            Err(errno) => Err(Unset {
                errno,
                message: text(&partition.message),
            }),
        }
    }

    /// The ids of all cgroups that are assigned to policies, with the names of the policies.
    pub fn rules(&self) -> Result<Vec<(u64, String)>> {
        let mut found = Vec::new();
        for index in 0..BATON_MAX_RULES as u32 {
            let rule = BatonRule {
                set: BatonRuleAct::Read as u32,
                index,
                cgroup: 0,
                name: [0; BATON_NAME_LEN],
            };
            let rule = self.ask::<BATON_IOC_RULE, _>(rule, "a cgroup's policy")?;
            if rule.cgroup != 0 {
                found.push((rule.cgroup, text(&rule.name)));
            }
        }
        Ok(found)
    }

    /// Assigns a cgroup to a policy, or to none.
    pub fn set_rule(&self, cgroup: u64, policy: Option<&str>) -> std::result::Result<(), Errno> {
        let name = field(policy.unwrap_or(""));
        self.request::<BATON_IOC_RULE, _>(&mut BatonRule {
            set: BatonRuleAct::Assign as u32,
            index: 0,
            cgroup,
            name,
        })
    }

    /// Determines the policy of each task anew, from its cgroup.
    pub fn apply_rules(&self) -> Result<()> {
        let rule = BatonRule {
            set: BatonRuleAct::Apply as u32,
            index: 0,
            cgroup: 0,
            name: [0; BATON_NAME_LEN],
        };
        self.ask::<BATON_IOC_RULE, _>(rule, "the policy of each cgroup")
            .map(|_| ())
    }

    /// Grants the permission to send hints, or revokes it.
    pub fn grant(&self, mut grant: BatonGrant) -> std::result::Result<(), Errno> {
        self.request::<BATON_IOC_GRANT, _>(&mut grant)
    }

    /// All grants.
    pub fn grants(&self) -> Result<Vec<BatonGrant>> {
        let grants = (0..BATON_MAX_GRANTS as u32)
            .map(|index| self.ask::<BATON_IOC_GRANT, _>(no_grant(index), "a grant"));
        grants
            .filter(|grant| {
                grant
                    .as_ref()
                    .map_or(true, |grant| grant.set == BatonGrantAct::Grant as u32)
            })
            .collect()
    }

    /// Assigns thread `pid` to a policy; with `None`, takes it from its policy. 0 stands for all
    /// tasks that are assigned to none. With `set_class` the thread also joins or leaves class
    /// SCHED_EXT.
    pub fn assign(
        &self,
        pid: u32,
        policy: Option<&str>,
        set_class: bool,
    ) -> std::result::Result<(), Refused> {
        let mut assign = BatonAssign {
            pid,
            set_class: set_class.into(),
            name: field(policy.unwrap_or("")),
            message: [0; BATON_MESSAGE_LEN],
        };
        self.request::<BATON_IOC_ASSIGN, _>(&mut assign)
            .map_err(|errno| Refused {
                errno,
                message: text(&assign.message),
            })
    }
}

/// The sizes of rings are given in MiB; a ring consists of blocks of 64 KiB.
pub const BLOCKS_PER_MIB: u32 = 16;

/// A recording in progress, which ends with this value at the latest; or the contents of a flight
/// recorder at a fault.
pub struct Rings {
    device: Device,
    /// What the core reported when the recording began.
    pub about: BatonRecord,
    nr_cpus: u32,
    /// The number of blocks taken, by CPU.
    taken: Vec<i32>,
    map: *mut u8,
    length: usize,
}

/// The result of a step of the reader: the bytes of a full block, if there is one.
pub struct Taken<'a> {
    pub block: Option<&'a [u8]>,
    /// [`BatonRecordEnd`], by number.
    pub end: u32,
}

impl Rings {
    /// Begins to record a policy, with at most this many blocks for each CPU, or opens the contents
    /// of its flight recorder. The thread that begins a recording gets a real-time priority.
    pub fn begin(
        device: Device,
        policy: &str,
        blocks: u32,
        how: BatonRecordHow,
        from_state: bool,
    ) -> Result<std::result::Result<Self, Refused>> {
        let nr_cpus = device.core()?.nr_cpus;
        let about = match device.record(policy, blocks, how, from_state) {
            Ok(about) => about,
            Err(refused) => return Ok(Err(refused)),
        };
        // One more block, for the mark of the end.
        let length = nr_cpus as usize * (about.blocks as usize + 1) * BLOCK_SIZE;
        // SAFETY: Ring-mapping. A new mapping that overlaps no other. It is read only, and only
        // where a block is.
        let map = unsafe {
            mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ,
                MapFlags::SHARED,
                &device.0,
                0,
            )
        };
        let map = map.map_err(|e| {
            Error::environment(
                format!("the rings cannot be mapped: {e}"),
                "give fewer MiB to each CPU",
            )
        })?;
        let taken = vec![0; nr_cpus as usize];
        Ok(Ok(Self {
            device,
            about,
            nr_cpus,
            taken,
            map: map.cast(),
            length,
        }))
    }

    /// The state with which the recording begins, if it has one.
    pub fn state(&self) -> Result<Option<Vec<u8>>> {
        match self.about.has_state {
            0 => Ok(None),
            _ => self.saved(0, self.about.state_length).map(Some),
        }
    }

    /// Makes a checkpoint, or returns the existing one of a fault: its stamp and the state. `None`
    /// if no checkpoint can be made now.
    pub fn checkpoint(&self) -> Result<Option<(u64, Vec<u8>)>> {
        let mut made = BatonRecordCheckpoint::default();
        match self
            .device
            .request::<BATON_IOC_RECORD_CHECKPOINT, _>(&mut made)
        {
            Ok(()) => self
                .saved(made.at, made.length)
                .map(|state| Some((made.stamp, state))),
            // A ring or the memory is too full for it, or the recording has ended, or a fault came
            // first.
            Err(Errno::AGAIN | Errno::NOMEM | Errno::NODATA | Errno::NODEV) => Ok(None),
            Err(Errno::FAULT) => {
                let policy = text(&self.about.name);
                let what =
                    format!("{policy} failed when it saved its state for a checkpoint; it goes on");
                Err(Error::policy(
                    &policy,
                    what,
                    "fix its reregister_prepare, or record it without --checkpoint",
                ))
            }
            Err(errno) => Err(Error::baton(format!(
                "a checkpoint could not be made: {errno}"
            ))),
        }
    }

    fn saved(&self, at: u64, length: u64) -> Result<Vec<u8>> {
        let mut state = vec![0; length as usize];
        let read = self.device.0.read_exact_at(&mut state, at);
        read.map_err(|e| Error::baton(format!("the policy's state cannot be read: {e}")))
            .map(|()| state)
    }

    /// Number of CPUs that have a ring.
    pub fn nr_cpus(&self) -> u32 {
        self.nr_cpus
    }

    /// Returns the block taken last from this CPU to the core, and takes the next one.
    pub fn take(&mut self, cpu: u32) -> Result<Taken<'_>> {
        let at = &mut self.taken[cpu as usize];
        let taken = BatonRecordBlock {
            cpu,
            block: *at & i32::MAX,
            ..Default::default()
        };
        let taken = self
            .device
            .ask::<BATON_IOC_RECORD_TAKE, _>(taken, "a block of the recording")?;
        *at = at.wrapping_add(i32::from(taken.block >= 0));
        let block = usize::try_from(taken.block).ok().map(|number| {
            assert!(
                (number + 1) * BLOCK_SIZE <= self.length,
                "the core gives blocks that are mapped"
            );
            // SAFETY: Ring-mapping. The block is in the mapping, and the core does not write it
            // until it is returned.
            unsafe { std::slice::from_raw_parts(self.map.add(number * BLOCK_SIZE), BLOCK_SIZE) }
        });
        Ok(Taken {
            block,
            end: taken.end,
        })
    }

    /// The description of a CPU that the policy was given.
    pub fn topology(&self, cpu: u32) -> Result<BatonCpu> {
        let look = BatonRecordBlock {
            cpu,
            block: -1,
            ..Default::default()
        };
        self.device
            .ask::<BATON_IOC_RECORD_TAKE, _>(look, "a CPU of the recording")
            .map(|answer| answer.topology)
    }

    /// Ends the recording. Blocks that are still in the rings can be taken afterwards.
    pub fn stop(&mut self) -> Result<()> {
        self.device
            .ask::<BATON_IOC_RECORD_STOP, _>(
                BatonRecordBlock::default(),
                "the end of the recording",
            )
            .map(|_| ())
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        // SAFETY: Ring-mapping. No borrow of the mapping is left. Unmapping an existing mapping
        // cannot fail.
        let _ = unsafe { mm::munmap(self.map.cast(), self.length) };
    }
}

fn no_policy(index: u32) -> BatonPolicyInfo {
    BatonPolicyInfo {
        index,
        state: 0,
        id: 0,
        version: 0,
        tasks: 0,
        queued: 0,
        rank: 0,
        share: 0,
        recording: 0,
        flight: 0,
        recorded: 0,
        language: 0,
        memory: 0,
        refusals: 0,
        faults: 0,
        name: [0; BATON_NAME_LEN],
        options: [0; BATON_OPTIONS_LEN],
        modules: [[0; BATON_MODULE_LEN]; 3],
        partition: [0; BATON_NAME_LEN],
        changes: 0,
        history: [BatonChange::default(); BATON_CHANGES_KEPT],
    }
}

fn no_partition() -> BatonPartition {
    BatonPartition {
        set: 0,
        index: 0,
        name: [0; BATON_NAME_LEN],
        cpus: [0; BATON_CPU_WORDS],
        policies: [[0; BATON_NAME_LEN]; BATON_MAX_POLICIES],
        message: [0; BATON_MESSAGE_LEN],
        held: 0,
    }
}

pub fn no_grant(index: u32) -> BatonGrant {
    BatonGrant {
        set: BatonGrantAct::Read as u32,
        index,
        name: [0; BATON_NAME_LEN],
        who: 0,
        user: 0,
        group: 0,
        entries: 0,
        cgroup: 0,
        queues: 0,
        any_thread: 0,
        open: 0,
        reserved: 0,
    }
}

fn no_fault(index: u32) -> BatonFault {
    BatonFault {
        index,
        kind: 0,
        method: 0,
        cpu: 0,
        pid: 0,
        line: 0,
        now: 0,
        serial: 0,
        ip: 0,
        policy: [0; BATON_NAME_LEN],
        comm: [0; 16],
        file: [0; 96],
        message: [0; BATON_MESSAGE_LEN],
        nr_events: 0,
        reserved: 0,
        events: [BatonEvent::default(); 10],
    }
}

/// A text in the kernel's format: NUL-terminated, cut if it is too long. The lengths of names and
/// options were checked before.
pub fn field<const LEN: usize>(text: &str) -> [u8; LEN] {
    let mut field = [0; LEN];
    let len = text.len().min(LEN - 1);
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
    field
}

/// The text in a field of the kernel.
pub fn text(field: &[u8]) -> String {
    let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Direction (both), size of the structure, type and number: the values that _IOWR makes of the
    /// structures of the C header.
    fn check(request: Opcode, number: u32, size: u32) {
        assert_eq!(
            request,
            3 << 30 | size << 16 | 0xBA << 8 | number,
            "request {number}: size {size}"
        );
    }

    #[test]
    fn requests_have_the_numbers_of_the_c_header() {
        check(BATON_IOC_CORE, 0, 40);
        check(BATON_IOC_POLICY, 1, 1040);
        check(BATON_IOC_FAULT, 2, 520);
        check(BATON_IOC_CPU, 3, 64);
        check(BATON_IOC_START, 4, 456);
        check(BATON_IOC_STOP, 5, 192);
        check(BATON_IOC_ASSIGN, 6, 200);
        check(BATON_IOC_TASK, 7, 44);
        check(BATON_IOC_UPGRADE, 8, 656);
        check(BATON_IOC_SWITCH, 9, 72);
        check(BATON_IOC_ORDER, 10, 512);
        check(BATON_IOC_SHARE, 11, 36);
        check(BATON_IOC_PARTITION, 12, 1232);
        check(BATON_IOC_RULE, 13, 48);
        check(BATON_IOC_RECORD, 14, 528);
        check(BATON_IOC_RECORD_TAKE, 15, 32);
        check(BATON_IOC_RECORD_STOP, 16, 32);
        check(BATON_IOC_RECORD_CHECKPOINT, 17, 24);
        check(BATON_IOC_GRANT, 18, 80);
    }

    #[test]
    fn texts_in_fields() {
        assert_eq!(field::<4>("ab"), *b"ab\0\0");
        assert_eq!(field::<4>("abcdef"), *b"abc\0");
        assert_eq!(text(b"ab\0cd"), "ab");
        assert_eq!(text(b"abcd"), "abcd");
    }
}
