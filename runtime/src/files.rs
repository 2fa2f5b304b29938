// SPDX-License-Identifier: GPL-2.0-only
//! Waits for files, above all sockets: one epoll for all user-level threads of a runtime. One idle
//! activation at a time waits for it.

use crate::pool::Shared;
use crate::task::{self, wait, Waiters};
use parking_lot::Mutex;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::Timespec;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::Arc;

/// Number of events that are read from the kernel at once.
const AT_ONCE: usize = 32;
/// Edge-triggered: a change is reported once, so a woken thread tries until the file would block.
const CHANGES: EventFlags = EventFlags::IN
    .union(EventFlags::OUT)
    .union(EventFlags::RDHUP)
    .union(EventFlags::ET);

/// The threads that wait for a file.
#[derive(Default)]
struct State {
    /// How often it has changed.
    changes: u64,
    waiters: Waiters,
}

type Place = Arc<Mutex<State>>;

/// All files that are watched.
pub(crate) struct Files {
    epoll: OwnedFd,
    /// By their numbers in the epoll. A number may be reused for another file, whose waiting
    /// threads then make at most one futile attempt.
    places: Mutex<Vec<Option<Place>>>,
    watched: AtomicUsize,
    /// An idle activation waits for the epoll.
    is_awaited: AtomicBool,
}

impl Files {
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self {
            epoll,
            places: Mutex::default(),
            watched: 0.into(),
            is_awaited: false.into(),
        })
    }

    /// Called by an activation before it sleeps. If files are watched and no other activation waits
    /// for them, the caller waits for them until [`Files::leave`].
    pub fn await_them(&self) -> Option<BorrowedFd<'_>> {
        let is_mine = self.watched.load(SeqCst) != 0 && !self.is_awaited.swap(true, SeqCst);
        is_mine.then(|| self.epoll.as_fd())
    }

    /// Are there files that no activation waits for?
    pub fn want_someone(&self) -> bool {
        self.watched.load(SeqCst) != 0 && !self.is_awaited.load(SeqCst)
    }

    /// The activation that waited for files no longer sleeps.
    pub fn leave(&self) {
        self.is_awaited.store(false, SeqCst);
    }

    /// Wakes the threads whose files have changed. Makes a system call if there is a file.
    pub fn look(&self) {
        if self.watched.load(SeqCst) == 0 {
            return;
        }
        let mut events: [Event; AT_ONCE] = std::array::from_fn(|_| Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        });
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // After a signal: the next look comes soon.
        let count = epoll::wait(&self.epoll, &mut events, Some(&now)).unwrap_or(0);
        for event in &events[..count] {
            let place = self
                .places
                .lock()
                .get(event.data.u64() as usize)
                .cloned()
                .flatten();
            let waiters = place.map(|place| {
                let mut state = place.lock();
                state.changes += 1;
                std::mem::take(&mut state.waiters)
            });
            waiters.into_iter().for_each(Waiters::wake_all);
        }
    }

    fn add(&self, file: BorrowedFd<'_>, place: &Place) -> io::Result<usize> {
        let mut places = self.places.lock();
        let number = places
            .iter()
            .position(Option::is_none)
            .unwrap_or(places.len());
        epoll::add(
            &self.epoll,
            file,
            EventData::new_u64(number as u64),
            CHANGES,
        )?;
        match places.get_mut(number) {
            Some(free) => *free = Some(Arc::clone(place)),
            None => places.push(Some(Arc::clone(place))),
        }
        self.watched.fetch_add(1, SeqCst);
        Ok(number)
    }

    fn remove(&self, file: BorrowedFd<'_>, number: usize) {
        // The epoll has already dropped a file that was closed meanwhile.
        let _ = epoll::delete(&self.epoll, file);
        if let Some(place) = self.places.lock().get_mut(number) {
            *place = None;
        }
        self.watched.fetch_sub(1, SeqCst);
    }
}

/// A file, socket or pipe that user-level threads wait for without keeping their core. Made by
/// [`watch`] or [`Runtime::watch`](crate::Runtime::watch).
pub struct Watched<F: AsFd> {
    file: F,
    number: usize,
    place: Place,
    shared: Arc<Shared>,
}

impl<F: AsFd> Watched<F> {
    pub(crate) fn new(shared: &Arc<Shared>, file: F) -> io::Result<Self> {
        let place = Place::default();
        let number = shared.files.add(file.as_fd(), &place)?;
        let watched = Self {
            file,
            number,
            place,
            shared: Arc::clone(shared),
        };
        // If this is the first file, idle activations do not wait for files yet.
        shared.call_idle();
        Ok(watched)
    }

    /// The file.
    pub fn get(&self) -> &F {
        &self.file
    }

    /// Calls `attempt` until it does not fail with [`io::ErrorKind::WouldBlock`], and waits for a
    /// change of the file before each further call. The file must be nonblocking. A kernel thread
    /// may call this too, until the runtime ends.
    ///
    /// ```no_run
    /// # fn of(peer: std::net::TcpStream) -> std::io::Result<()> {
    /// use std::io::Read;
    ///
    /// peer.set_nonblocking(true)?;
    /// let peer = baton_runtime::watch(peer)?;
    /// let mut buffer = [0; 512];
    /// let count = peer.until_ready(|mut peer| peer.read(&mut buffer))?;
    /// # let _ = count; Ok(()) }
    /// ```
    pub fn until_ready<T>(&self, mut attempt: impl FnMut(&F) -> io::Result<T>) -> io::Result<T> {
        loop {
            let before = self.place.lock().changes;
            match attempt(&self.file) {
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => self.wait(before),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Waits until the file's count of changes exceeds `before`.
    fn wait(&self, before: u64) {
        loop {
            {
                let mut state = self.place.lock();
                if state.changes != before {
                    state.waiters.leave();
                    return;
                }
                state.waiters.join();
            }
            wait();
        }
    }
}

impl<F: AsFd> Drop for Watched<F> {
    fn drop(&mut self) {
        self.shared.files.remove(self.file.as_fd(), self.number);
    }
}

/// Watches a file for user-level threads of the caller's runtime.
///
/// # Errors
/// If the kernel cannot watch it: an ordinary file, or too many.
///
/// # Panics
/// If the caller is no user-level thread (others use [`Runtime::watch`](crate::Runtime::watch)).
pub fn watch<F: AsFd>(file: F) -> io::Result<Watched<F>> {
    let task =
        task::current().expect("watch is for user-level threads; others have Runtime::watch");
    Watched::new(&task.shared, file)
}
