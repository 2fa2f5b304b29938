// SPDX-License-Identifier: GPL-2.0-only
//! The only table of requests (ioctls): those of the control device `/dev/baton`, number 24 of
//! `/dev/baton-enclaves`, from 32 on those of `/dev/baton-hints`, and from 48 on those of an
//! enclave. A request number contains the size of its structure, so a request with a structure of
//! another size is refused as unknown.

use crate::{
    BatonAgentAttach, BatonAgentCommits, BatonAgentFail, BatonAgentKick, BatonAgentReply,
    BatonAgentServe, BatonAgentTopology, BatonAssign, BatonCalls, BatonCoreInfo, BatonCpuInfo,
    BatonEnclave, BatonFault, BatonGrant, BatonHintsOpen, BatonHintsSend, BatonMeasure, BatonOrder,
    BatonPartition, BatonPolicyInfo, BatonRecord, BatonRecordBlock, BatonRecordCheckpoint,
    BatonRefusedChange, BatonRule, BatonShare, BatonStart, BatonStop, BatonSwitch, BatonTaskInfo,
    BatonUpgrade,
};

/// `_IOWR` of the kernel (include/uapi/asm-generic/ioctl.h), with Baton's type of requests.
const fn read_write<T>(number: u32) -> u32 {
    const READ_AND_WRITE: u32 = 3;
    const BATON: u32 = 0xba;
    READ_AND_WRITE << 30 | (size_of::<T>() as u32) << 16 | BATON << 8 | number
}

macro_rules! requests {
    ($($name:ident = $number:literal, $structure:ty;)*) => {
        $(pub const $name: u32 = read_write::<$structure>($number);)*

        /// Names and numbers of all requests.
        pub const REQUESTS: &[(&str, u32)] = &[$((stringify!($name), $name)),*];
    };
}

requests! {
    BATON_IOC_CORE = 0, BatonCoreInfo;
    BATON_IOC_POLICY = 1, BatonPolicyInfo;
    BATON_IOC_FAULT = 2, BatonFault;
    BATON_IOC_CPU = 3, BatonCpuInfo;
    BATON_IOC_START = 4, BatonStart;
    BATON_IOC_STOP = 5, BatonStop;
    BATON_IOC_ASSIGN = 6, BatonAssign;
    BATON_IOC_TASK = 7, BatonTaskInfo;
    BATON_IOC_UPGRADE = 8, BatonUpgrade;
    BATON_IOC_SWITCH = 9, BatonSwitch;
    BATON_IOC_ORDER = 10, BatonOrder;
    BATON_IOC_SHARE = 11, BatonShare;
    BATON_IOC_PARTITION = 12, BatonPartition;
    BATON_IOC_RULE = 13, BatonRule;
    BATON_IOC_RECORD = 14, BatonRecord;
    BATON_IOC_RECORD_TAKE = 15, BatonRecordBlock;
    BATON_IOC_RECORD_STOP = 16, BatonRecordBlock;
    BATON_IOC_RECORD_CHECKPOINT = 17, BatonRecordCheckpoint;
    BATON_IOC_GRANT = 18, BatonGrant;
    BATON_IOC_REFUSED_CHANGE = 19, BatonRefusedChange;
    BATON_IOC_MEASURE = 20, BatonMeasure;
    BATON_IOC_CALLS = 21, BatonCalls;
    BATON_ENCLAVE_IOC_SET = 24, BatonEnclave;
    BATON_HINTS_IOC_OPEN = 32, BatonHintsOpen;
    BATON_HINTS_IOC_SEND = 33, BatonHintsSend;
    BATON_AGENT_IOC_ATTACH = 48, BatonAgentAttach;
    BATON_AGENT_IOC_TOPOLOGY = 49, BatonAgentTopology;
    BATON_AGENT_IOC_KICK = 50, BatonAgentKick;
    BATON_AGENT_IOC_SERVE = 51, BatonAgentServe;
    // The agent of a CPU gives way. Returns when there are messages again, or after so many ns if
    // the argument, which is a number, is not 0.
    BATON_AGENT_IOC_WAIT = 52, ();
    BATON_AGENT_IOC_FAIL = 53, BatonAgentFail;
    BATON_AGENT_IOC_COMMIT = 54, BatonAgentCommits;
    // This thread is no longer the agent of a CPU.
    BATON_AGENT_IOC_LEAVE = 55, ();
    BATON_AGENT_IOC_REPLY = 56, BatonAgentReply;
}
