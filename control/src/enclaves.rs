// SPDX-License-Identifier: GPL-2.0-only
//! Enclaves: policies whose answers come from a process, the agent. The device
//! `/dev/baton-enclaves` of `baton_agent.ko` makes and removes them.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::time::Duration;

use baton_abi::{
    BatonEnclave, BatonEnclaveAct, BATON_ENCLAVE_IOC_SET, BATON_MESSAGE_LEN, BATON_NAME_LEN,
};
use rustix::io::Errno;
use rustix::ioctl;
use serde::Serialize;

use crate::device::{field, text};
use crate::error::{Error, Result};
use crate::kernel;
use crate::modules::{Search, AGENT};

const PATH: &str = "/dev/baton-enclaves";

/// An enclave, as `baton enclave list --json` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct Enclave {
    /// Name of the enclave, and of its policy.
    pub name: String,
    /// Process id of its agent; `None` if it has none.
    pub agent: Option<u32>,
    /// Tasks that wait for the agent to run them.
    pub queued: u32,
    /// Agents that were attached so far.
    pub attached: u64,
    /// Messages to the present agent, and those that found no room, which are not among them.
    pub posted: u64,
    /// See `posted`.
    pub lost: u64,
    /// Tasks that the present agent had run.
    pub picks: u64,
    /// Transactions of the present agent that came too late, or were refused.
    pub stale: u64,
    /// Messages that the ring of each CPU holds.
    pub entries: u32,
    /// No task waits longer than this for an agent that does not answer, ms. The enclave gives the
    /// agent up after half of it.
    pub limit_ms: u32,
}

/// The device of the enclaves. Only root can open it.
pub struct Enclaves(File);

impl Enclaves {
    /// `None` if the module is not loaded.
    pub fn open_if_loaded() -> Result<Option<Self>> {
        match OpenOptions::new().read(true).write(true).open(PATH) {
            Ok(file) => Ok(Some(Self(file))),
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

    /// Loads the module if needed. The core is loaded, and the caller has the lock.
    pub fn open(search: &Search) -> Result<Self> {
        if let Some(enclaves) = Self::open_if_loaded()? {
            return Ok(enclaves);
        }
        kernel::load_module(&search.find(AGENT)?, "")?;
        // The kernel's devtmpfs creates the device node, or udev does a moment later.
        kernel::wait_until(Duration::from_secs(2), || {
            Ok(Self::open_if_loaded()?.is_some())
        })?;
        Self::open_if_loaded()?.ok_or_else(|| {
            Error::environment(
                format!("baton_agent.ko is loaded, but {PATH} is not there"),
                "mount devtmpfs on /dev, and try again",
            )
        })
    }

    fn request(&self, act: BatonEnclaveAct, index: u32, name: &str) -> BatonEnclave {
        BatonEnclave {
            act: act as u32,
            index,
            name: field::<BATON_NAME_LEN>(name),
            entries: 0,
            limit: 0,
            agent: 0,
            queued: 0,
            attached: 0,
            posted: 0,
            lost: 0,
            picks: 0,
            stale: 0,
            message: [0; BATON_MESSAGE_LEN],
        }
    }

    fn set(&self, enclave: &mut BatonEnclave) -> std::result::Result<(), Errno> {
        // SAFETY: Sized-request. The number is that of this structure, whose size is part of the
        // number. The kernel writes no more than that. Every bit pattern is a value of this
        // structure of integers.
        unsafe {
            ioctl::ioctl(
                &self.0,
                ioctl::Updater::<BATON_ENCLAVE_IOC_SET, BatonEnclave>::new(enclave),
            )
        }
    }

    /// Makes an enclave without an agent. `entries` and `limit_ms`: `None` for the default.
    pub fn create(&self, name: &str, entries: Option<u32>, limit_ms: Option<u32>) -> Result<()> {
        let mut enclave = self.request(BatonEnclaveAct::Create, 0, name);
        enclave.entries = entries.unwrap_or(0);
        enclave.limit = limit_ms.unwrap_or(0);
        self.set(&mut enclave).map_err(|errno| {
            refused(
                name,
                "made",
                errno,
                &text(&enclave.message),
                "see what there is: baton list, baton enclave list",
            )
        })
    }

    /// Ends the agent of an enclave, and removes the enclave. Its tasks go on under the default
    /// policy, or the fallback.
    pub fn destroy(&self, name: &str) -> Result<()> {
        let mut enclave = self.request(BatonEnclaveAct::Destroy, 0, name);
        self.set(&mut enclave).map_err(|errno| {
            refused(
                name,
                "removed",
                errno,
                &text(&enclave.message),
                "see which enclaves there are: baton enclave list",
            )
        })
    }

    /// Ends the agent of an enclave, if it has one. The enclave waits for another.
    pub fn dismiss(&self, name: &str) -> Result<()> {
        let mut enclave = self.request(BatonEnclaveAct::Dismiss, 0, name);
        self.set(&mut enclave).map_err(|errno| {
            refused(
                name,
                "left by its agent",
                errno,
                &text(&enclave.message),
                "see which enclaves there are: baton enclave list",
            )
        })
    }

    /// All enclaves, in the order in which they were made.
    pub fn list(&self) -> Result<Vec<Enclave>> {
        let mut found = Vec::new();
        loop {
            let mut enclave = self.request(BatonEnclaveAct::Read, found.len() as u32, "");
            self.set(&mut enclave)
                .map_err(|errno| Error::baton(format!("an enclave cannot be read: {errno}")))?;
            if enclave.name[0] == 0 {
                return Ok(found);
            }
            found.push(Enclave {
                name: text(&enclave.name),
                agent: (enclave.agent != 0).then_some(enclave.agent),
                queued: enclave.queued,
                attached: enclave.attached,
                posted: enclave.posted,
                lost: enclave.lost,
                picks: enclave.picks,
                stale: enclave.stale,
                entries: enclave.entries,
                limit_ms: enclave.limit,
            });
        }
    }

    /// The enclave of that name, if there is one.
    pub fn find(&self, name: &str) -> Result<Option<Enclave>> {
        Ok(self
            .list()?
            .into_iter()
            .find(|enclave| enclave.name == name))
    }
}

fn refused(name: &str, what: &str, errno: Errno, why: &str, do_next: &str) -> Error {
    if why.is_empty() {
        Error::environment(
            format!("the enclave {name} was not {what}: {errno}"),
            do_next,
        )
    } else {
        Error::user(format!("the enclave {name} was not {what}: {why}"), do_next)
    }
}
