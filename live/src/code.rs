// SPDX-License-Identifier: GPL-2.0-only
//! Instructions of x86-64, as far as they refer to other code and to data.

use iced_x86::{Decoder, DecoderOptions, FlowControl, OpKind};

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Its address.
    pub at: u64,
    /// The address of the next one.
    pub end: u64,
    /// The target of a direct call or jump.
    pub branch: Option<u64>,
    /// An address that it computes or loads from, or that it has as a constant. Any constant of the
    /// size of an address counts.
    pub address: Option<u64>,
}

/// Decodes code that begins at the address. Decoding ends at the first byte that is no instruction.
pub fn decode(code: &[u8], address: u64) -> impl Iterator<Item = Instruction> + '_ {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    std::iter::from_fn(move || {
        if !decoder.can_decode() {
            return None;
        }
        let decoded = decoder.decode();
        (!decoded.is_invalid()).then(|| Instruction {
            at: decoded.ip(),
            end: decoded.next_ip(),
            branch: branch(&decoded),
            address: address_in(&decoded),
        })
    })
}

/// The length in bytes of the first instruction, if it is one.
pub fn length(code: &[u8]) -> Option<usize> {
    let first = decode(code, 0).next()?;
    usize::try_from(first.end).ok()
}

fn branch(decoded: &iced_x86::Instruction) -> Option<u64> {
    let is_direct = decoded.op_count() > 0 && decoded.op0_kind() == OpKind::NearBranch64;
    let leaves = matches!(
        decoded.flow_control(),
        FlowControl::Call | FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch
    );
    (is_direct && leaves).then(|| decoded.near_branch_target())
}

fn address_in(decoded: &iced_x86::Instruction) -> Option<u64> {
    if decoded.is_ip_rel_memory_operand() {
        return Some(decoded.ip_rel_memory_address());
    }
    (0..decoded.op_count()).find_map(|operand| match decoded.op_kind(operand) {
        OpKind::Immediate32to64 | OpKind::Immediate64 => Some(decoded.immediate(operand)),
        _ => None,
    })
}

/// The instructions in the code of a section, for relocations.
pub struct Code(Vec<Instruction>);

impl Code {
    /// Decodes from each start to the next: what lies between functions need not be code.
    ///
    /// # Panics
    /// `starts` does not ascend, or goes beyond the code.
    pub fn of(code: &[u8], starts: &[u64]) -> Self {
        let mut instructions = Vec::new();
        for (index, &start) in starts.iter().enumerate() {
            let next = starts
                .get(index + 1)
                .map_or(code.len(), |&next| next as usize);
            instructions.extend(decode(&code[start as usize..next], start));
        }
        Self(instructions)
    }

    /// All instructions, by address.
    pub fn instructions(&self) -> &[Instruction] {
        &self.0
    }

    /// The instruction that contains the offset.
    pub fn around(&self, offset: u64) -> Option<&Instruction> {
        let found = self.0.get(self.0.partition_point(|i| i.end <= offset))?;
        (found.at <= offset).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_instructions_refer_to() {
        let check = |code: &[u8], branch, address| {
            let found = decode(code, 0xffff_ffff_8100_0000).next().unwrap();
            assert_eq!(
                (found.branch, found.address),
                (branch, address),
                "{code:x?}"
            );
            assert_eq!(found.end - found.at, code.len() as u64);
        };
        // call .+5+0x10; jmp .+2-2; jne .+6+0x100
        check(&[0xe8, 0x10, 0, 0, 0], Some(0xffff_ffff_8100_0015), None);
        check(&[0xeb, 0xfe], Some(0xffff_ffff_8100_0000), None);
        check(&[0x0f, 0x85, 0, 1, 0, 0], Some(0xffff_ffff_8100_0106), None);
        // lea 0x20(%rip),%rdi; mov $0xffffffff81234567,%rdi; cmpl $1,0x20(%rip)
        check(
            &[0x48, 0x8d, 0x3d, 0x20, 0, 0, 0],
            None,
            Some(0xffff_ffff_8100_0027),
        );
        check(
            &[0x48, 0xc7, 0xc7, 0x67, 0x45, 0x23, 0x81],
            None,
            Some(0xffff_ffff_8123_4567),
        );
        check(
            &[0x83, 0x3d, 0x20, 0, 0, 0, 1],
            None,
            Some(0xffff_ffff_8100_0027),
        );
        // call *%rax; ret
        check(&[0xff, 0xd0], None, None);
        check(&[0xc3], None, None);
    }

    #[test]
    fn the_instruction_around_an_offset() {
        // cmpl $1,0x20(%rip); ret; padding that is no code; at 10: jmp .
        let bytes = [0x83, 0x3d, 0x20, 0, 0, 0, 1, 0xc3, 0x06, 0x06, 0xeb, 0xfe];
        let code = Code::of(&bytes, &[0, 10]);
        let check = |offset, expected| {
            let found = code.around(offset).map(|found| (found.at, found.end));
            assert_eq!(found, expected, "around {offset}");
        };
        check(2, Some((0, 7)));
        check(7, Some((7, 8)));
        check(8, None);
        check(11, Some((10, 12)));
        check(12, None);
        assert_eq!(length(&bytes), Some(7));
        assert_eq!(length(&[]), None);
    }
}
