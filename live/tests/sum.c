// SPDX-License-Identifier: GPL-2.0-only
/* sum FROM TO: prints a sum of the kernel's memory between two addresses in hexadecimal. */
#include <elf.h>
#include <err.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void read_at(int file, void *to, size_t size, off_t at)
{
	if (pread(file, to, size, at) != (ssize_t)size)
		err(1, "reading /proc/kcore");
}

int main(int argc, char **argv)
{
	uint64_t from, to, sum = 0xcbf29ce484222325;
	unsigned char *bytes;
	Elf64_Ehdr header;
	int file;

	if (argc != 3)
		errx(2, "usage: sum FROM TO");
	from = strtoull(argv[1], NULL, 16);
	to = strtoull(argv[2], NULL, 16);
	file = open("/proc/kcore", O_RDONLY);
	if (file < 0 || to <= from)
		err(1, "/proc/kcore, or the range");
	read_at(file, &header, sizeof(header), 0);
	bytes = malloc(to - from);
	for (int i = 0; bytes && i < header.e_phnum; i++) {
		Elf64_Phdr part;

		read_at(file, &part, sizeof(part), header.e_phoff + i * sizeof(part));
		if (part.p_type != PT_LOAD || from < part.p_vaddr ||
		    to > part.p_vaddr + part.p_memsz)
			continue;
		read_at(file, bytes, to - from, part.p_offset + (from - part.p_vaddr));
		for (uint64_t at = 0; at < to - from; at++)
			sum = (sum ^ bytes[at]) * 0x100000001b3;
		printf("%016llx\n", (unsigned long long)sum);
		return 0;
	}
	errx(1, "/proc/kcore has no such range");
}
