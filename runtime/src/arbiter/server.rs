// SPDX-License-Identifier: GPL-2.0-only
//! An arbiter outside the scheduler, like Arachne's own: a server with a socket that moves threads
//! between sets of CPUs. It is the baseline for the policy `arbiter`.

use super::socket::{receive, send, Message, GRANTED, JOIN, PARK, RECLAIM, REQUEST};
use rustix::io::Errno;
use rustix::process::Pid;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Time within which a process must give a reclaimed core back. Afterwards the core is taken.
const WITHIN: Duration = Duration::from_millis(10);
/// Pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(10);
const LEVELS: usize = 8;
/// The cgroup of its sets.
const GROUP: &str = "/sys/fs/cgroup/baton-arbiter";

/// Grants cores of these CPUs to all processes that connect, until `until` returns. Then the socket
/// and the cgroup are removed. The first CPU is never granted.
///
/// # Errors
/// If it cannot listen there, or cpusets are not available: the caller is not the superuser, there
/// is no cgroup v2, cpusets are used by version 1, or another server uses the cgroup.
pub fn serve(socket: &Path, cpus: u32, until: impl FnOnce()) -> io::Result<()> {
    // Once the socket exists, the cpusets do too.
    let table = CoreTable::of(cpus, Sets::new(cpus)?);
    let (listener, inside) = (UnixListener::bind(socket)?, Arc::clone(&table));
    thread::spawn(move || {
        if let Err(why) = serve_by(&listener, &inside) {
            eprintln!(
                "arbiter: no process can connect any more: {why}; end this server, and start it \
                 anew"
            );
        }
    });
    until();
    // No thread moves threads there any more.
    drop(std::mem::replace(&mut open(&table.0).sets, Sets::None));
    fs::remove_file(socket)
}

/// For tests on machines that must not be changed: grants cores, and moves no thread.
#[doc(hidden)]
pub fn serve_unmoved(socket: &Path, cpus: u32) -> io::Result<()> {
    serve_by(
        &UnixListener::bind(socket)?,
        &CoreTable::of(cpus, Sets::None),
    )
}

fn serve_by(listener: &UnixListener, table: &Arc<(Mutex<CoreTable>, Condvar)>) -> io::Result<()> {
    let clock = Arc::clone(table);
    thread::spawn(move || watch(&clock));
    for (number, stream) in listener.incoming().enumerate() {
        let stream = match stream {
            Ok(stream) => stream,
            Err(why) if passes(&why) => {
                thread::sleep(PAUSE);
                continue;
            }
            Err(why) => return Err(why),
        };
        let table = Arc::clone(table);
        thread::spawn(move || {
            // An error ends the connection only.
            let _ = attend(&table, &stream, number as u64);
            open(&table.0).leave(number as u64);
        });
    }
    Ok(())
}

/// Is this error transient? It concerns one connection only, or a lack of files or memory, of which
/// some may be released soon.
fn passes(why: &io::Error) -> bool {
    let errors = [
        Errno::CONNABORTED,
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
        Errno::NOBUFS,
    ];
    Errno::from_io_error(why).is_some_and(|errno| errors.contains(&errno))
}

/// A thread that panicked with the lock has reported it; its process's data are consistent.
fn open(table: &Mutex<CoreTable>) -> MutexGuard<'_, CoreTable> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes cores that are not given back in time.
fn watch((table, changed): &(Mutex<CoreTable>, Condvar)) {
    let mut inside = open(table);
    loop {
        inside.take_overdue();
        inside.settle();
        let due = inside
            .cores
            .iter()
            .flatten()
            .filter_map(|core| core.due)
            .min();
        let wait = due.map_or(Duration::from_secs(3600), |due| {
            due.saturating_duration_since(Instant::now())
        });
        inside = changed
            .wait_timeout(inside, wait)
            .map_or_else(|gone| gone.into_inner().0, |(inside, _)| inside);
    }
}

fn attend(
    (table, changed): &(Mutex<CoreTable>, Condvar),
    stream: &UnixStream,
    number: u64,
) -> io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?.pid;
    {
        let mut table = open(table);
        table.sets.adopt(peer)?;
        let to = stream.try_clone()?;
        table.processes.push(Process {
            number,
            to,
            wanted: [0; LEVELS],
            members: Vec::new(),
            target: 0,
        });
    }
    loop {
        let message = receive(stream)?;
        let mut table = open(table);
        table.hear(number, message);
        table.settle();
        changed.notify_one();
    }
}

/// A granted CPU: the process and activation that have it, and when it is taken.
#[derive(Clone)]
struct Grant {
    process: u64,
    activation: u32,
    due: Option<Instant>,
}

/// An activation.
struct Member {
    thread: u32,
    index: u32,
    is_parked: bool,
}

struct Process {
    number: u64,
    to: UnixStream,
    wanted: [u32; LEVELS],
    members: Vec<Member>,
    target: usize,
}

struct CoreTable {
    sets: Sets,
    cores: Vec<Option<Grant>>,
    processes: Vec<Process>,
}

impl CoreTable {
    fn of(cpus: u32, sets: Sets) -> Arc<(Mutex<Self>, Condvar)> {
        let table = Self {
            sets,
            cores: vec![None; cpus as usize],
            processes: Vec::new(),
        };
        Arc::new((Mutex::new(table), Condvar::new()))
    }

    fn hear(&mut self, number: u64, [what, first, second]: Message) {
        let Some(process) = self
            .processes
            .iter_mut()
            .find(|process| process.number == number)
        else {
            return;
        };
        match what {
            JOIN => process.members.push(Member {
                thread: first,
                index: second,
                is_parked: true,
            }),
            REQUEST if (first as usize) < LEVELS => process.wanted[first as usize] = second,
            PARK => {
                if let Some(member) = process
                    .members
                    .iter_mut()
                    .find(|member| member.index == first)
                {
                    member.is_parked = true;
                }
                self.free(|grant| grant.process == number && grant.activation == first);
            }
            // Unknown messages are ignored.
            _ => {}
        }
    }

    fn leave(&mut self, number: u64) {
        self.processes.retain(|process| process.number != number);
        self.free(|grant| grant.process == number);
        self.settle();
    }

    fn free(&mut self, of: impl Fn(&Grant) -> bool) {
        for core in &mut self.cores {
            if core.as_ref().is_some_and(&of) {
                *core = None;
            }
        }
        self.share();
    }

    fn take_overdue(&mut self) {
        let now = Instant::now();
        for cpu in 0..self.cores.len() {
            let Some(grant) = self.cores[cpu]
                .clone()
                .filter(|grant| grant.due.is_some_and(|due| due <= now))
            else {
                continue;
            };
            self.cores[cpu] = None;
            if let Some(thread) = self.thread(grant.process, grant.activation) {
                self.sets.move_shared(thread);
            }
        }
        self.share();
    }

    fn thread(&self, process: u64, activation: u32) -> Option<u32> {
        let process = self.processes.iter().find(|one| one.number == process)?;
        process
            .members
            .iter()
            .find(|member| member.index == activation)
            .map(|member| member.thread)
    }

    /// Gives all other threads the CPUs that are not granted.
    fn share(&mut self) {
        let free: Vec<_> = (0..self.cores.len())
            .filter(|&cpu| self.cores[cpu].is_none())
            .collect();
        self.sets.share(&free);
    }

    fn held(&self, number: u64) -> usize {
        self.cores
            .iter()
            .flatten()
            .filter(|grant| grant.process == number && grant.due.is_none())
            .count()
    }

    /// Applies rules 2 and 3 of the policy.
    fn settle(&mut self) {
        let mut left = self.cores.len().saturating_sub(1);
        self.processes
            .iter_mut()
            .for_each(|process| process.target = 0);
        for level in 0..LEVELS {
            for round in 0.. {
                let before = left;
                for process in &mut self.processes {
                    if left > 0
                        && process.wanted[level] > round
                        && process.target < process.members.len()
                    {
                        process.target += 1;
                        left -= 1;
                    }
                }
                if left == before {
                    break;
                }
            }
        }
        for at in 0..self.processes.len() {
            self.reclaim(at);
        }
        for at in 0..self.processes.len() {
            self.grant(at);
        }
    }

    fn reclaim(&mut self, at: usize) {
        let process = &self.processes[at];
        let mut held = self.held(process.number);
        for grant in self.cores.iter_mut().flatten() {
            if grant.process == process.number && grant.due.is_none() && held > process.target {
                held -= 1;
                grant.due = Some(Instant::now() + WITHIN);
                // The reader notices if the process is gone.
                let _ = send(&process.to, [RECLAIM, grant.activation, 0]);
            }
        }
    }

    fn grant(&mut self, at: usize) {
        let number = self.processes[at].number;
        let mut held = self.held(number);
        while held < self.processes[at].target {
            let cpu = (1..self.cores.len())
                .rev()
                .find(|&cpu| self.cores[cpu].is_none());
            let process = &mut self.processes[at];
            let Some((cpu, member)) =
                cpu.zip(process.members.iter_mut().find(|member| member.is_parked))
            else {
                return;
            };
            member.is_parked = false;
            let (thread, activation) = (member.thread, member.index);
            self.cores[cpu] = Some(Grant {
                process: number,
                activation,
                due: None,
            });
            held += 1;
            self.share();
            self.sets.move_to(thread, cpu);
            let _ = send(&self.processes[at].to, [GRANTED, activation, cpu as u32]);
        }
    }
}

/// The sets of CPUs on which threads may run.
enum Sets {
    Cpusets(Group),
    /// Threads are not confined.
    None,
}

impl Sets {
    fn new(cpus: u32) -> io::Result<Self> {
        fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset")?;
        let group = Group::take(GROUP.into())?;
        group.divide(cpus)?;
        Ok(Self::Cpusets(group))
    }

    /// Moves a process that has connected into the cgroup; its threads have no core.
    fn adopt(&self, process: Pid) -> io::Result<()> {
        if let Self::Cpusets(Group { path: group, .. }) = self {
            fs::write(
                group.join("cgroup.procs"),
                process.as_raw_nonzero().to_string(),
            )?;
            for thread in fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero()))? {
                fs::write(
                    group.join("shared/cgroup.threads"),
                    thread?.file_name().as_encoded_bytes(),
                )?;
            }
        }
        Ok(())
    }

    fn move_to(&self, thread: u32, cpu: usize) {
        self.put(thread, &format!("core-{cpu}"));
    }

    fn move_shared(&self, thread: u32) {
        self.put(thread, "shared");
    }

    /// Moves a thread to a set. A thread that has ended cannot be moved, and need not be.
    fn put(&self, thread: u32, set: &str) {
        if let Self::Cpusets(Group { path: group, .. }) = self {
            let _ = fs::write(group.join(set).join("cgroup.threads"), thread.to_string());
        }
    }

    fn share(&self, free: &[usize]) {
        if let Self::Cpusets(Group { path: group, .. }) = self {
            let list: Vec<_> = free.iter().map(usize::to_string).collect();
            // The first CPU is always free: the list is never empty.
            let _ = fs::write(group.join("shared/cpuset.cpus"), list.join(","));
        }
    }
}

/// A cgroup with a cpuset for each core, and one for all other threads. Removed on drop.
struct Group {
    path: PathBuf,
    /// Its directory, locked until it is removed. A killed server leaves no lock, and the next
    /// server takes its group over.
    _lock: File,
}

impl Group {
    /// Creates or takes the group. Fails without changes if another server has it.
    fn take(path: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&path)?;
        let lock = File::open(&path)?;
        match lock.try_lock() {
            // Otherwise another server has removed the directory that was opened.
            Ok(()) if fs::metadata(&path)?.ino() == lock.metadata()?.ino() => {
                Ok(Self { path, _lock: lock })
            }
            Err(TryLockError::Error(why)) => Err(why),
            Ok(()) | Err(TryLockError::WouldBlock) => {
                let what = format!("another server of cores runs, with {}", path.display());
                Err(io::Error::new(io::ErrorKind::ResourceBusy, what))
            }
        }
    }

    fn divide(&self, cpus: u32) -> io::Result<()> {
        fs::write(self.path.join("cgroup.subtree_control"), "+cpuset").or_else(|_| {
            // In that case its children must be made threaded first.
            fs::create_dir_all(self.path.join("shared"))?;
            fs::write(self.path.join("shared/cgroup.type"), "threaded")?;
            fs::write(self.path.join("cgroup.subtree_control"), "+cpuset")
        })?;
        for cpu in 0..cpus {
            Self::set(&self.path.join(format!("core-{cpu}")), &cpu.to_string())?;
        }
        Self::set(&self.path.join("shared"), &format!("0-{}", cpus - 1))
    }

    fn set(set: &Path, cpus: &str) -> io::Result<()> {
        fs::create_dir_all(set)?;
        fs::write(set.join("cgroup.type"), "threaded")?;
        fs::write(set.join("cpuset.cpus"), cpus)
    }

    /// Moves the processes that are still in it to the root, and removes it.
    fn remove(&self) -> io::Result<()> {
        for process in fs::read_to_string(self.path.join("cgroup.procs"))?.lines() {
            // The process may have ended meanwhile.
            let _ = fs::write("/sys/fs/cgroup/cgroup.procs", process);
        }
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                fs::remove_dir(entry.path())?;
            }
        }
        fs::remove_dir(&self.path)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(why) = self.remove() {
            eprintln!("arbiter: {} stays: {why}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_one_servers_at_a_time() {
        let path = std::env::temp_dir().join(format!("baton-arbiter-group-{}", std::process::id()));
        let core = path.join("core-0");
        fs::create_dir_all(&core).unwrap();
        let first = File::open(&path).unwrap();
        first.lock().unwrap();
        let why = Group::take(path.clone())
            .err()
            .map(|why| why.to_string())
            .unwrap_or_default();
        assert!(
            why.starts_with("another server of cores runs, with /") && core.exists(),
            "{why}"
        );
        // As when the server is killed.
        drop(first);
        let second = Group::take(path.clone()).unwrap();
        assert!(Group::take(path.clone()).is_err());
        // This is no cgroup, so it is not removed.
        drop(second);
        fs::remove_dir_all(path).unwrap();
    }
}
