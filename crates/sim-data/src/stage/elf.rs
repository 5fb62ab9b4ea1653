//! The smallest shared object that tools and the loader take for one: a SONAME, no code.
//!
//! Programs that look at a driver library read its SONAME from the dynamic section, some by
//! program headers and some by section headers, so both are there.

/// An ELF64 shared object of this machine's kind with that SONAME.
#[must_use]
pub fn shared_object(soname: &str) -> Vec<u8> {
    let strings = [b"\0", soname.as_bytes(), b"\0"].concat();
    let section_names: &[u8] = b"\0.hash\0.dynsym\0.dynstr\0.dynamic\0.shstrtab\0";

    // File offsets are addresses too: the one segment is loaded at 0.
    let headers = EHDR + 2 * PHDR;
    let hash = headers;
    let symbols = align(hash + HASH);
    let names = symbols + SYM;
    let dynamic = align(names + strings.len());
    let entries: [(u64, u64); 7] = [
        (DT_SONAME, 1),
        (DT_HASH, hash as u64),
        (DT_SYMTAB, symbols as u64),
        (DT_SYMENT, SYM as u64),
        (DT_STRTAB, names as u64),
        (DT_STRSZ, strings.len() as u64),
        (DT_NULL, 0),
    ];
    let dynamic_size = entries.len() * 16;
    let end = dynamic + dynamic_size;
    let sections = align(end + section_names.len());

    let mut out = Bytes(Vec::with_capacity(sections + 6 * SHDR));
    // ELF, 64 bits, little endian, version 1, System V.
    out.raw(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    out.half(3).half(MACHINE).word(1).long(0).long(EHDR as u64).long(sections as u64).word(0);
    out.half(EHDR as u16).half(PHDR as u16).half(2).half(SHDR as u16).half(6).half(5);
    // Readable and writable: the loader relocates the dynamic section in place.
    out.program_header(1, 0, end, 0x1000);
    out.program_header(2, dynamic, dynamic_size, 8);
    // One bucket, one chain, no symbol but the null one.
    out.word(1).word(1).word(0).word(0);
    out.pad_to(symbols + SYM);
    out.raw(&strings);
    out.pad_to(dynamic);
    for (tag, value) in entries {
        out.long(tag).long(value);
    }
    out.raw(section_names);
    out.pad_to(sections);
    out.raw(&[0; SHDR]);
    out.section_header(1, 5, hash, HASH, 2, 4);
    out.section_header(7, 11, symbols, SYM, 3, SYM);
    out.section_header(15, 3, names, strings.len(), 0, 0);
    out.section_header(23, 6, dynamic, dynamic_size, 3, 16);
    out.section_header(32, 3, end, section_names.len(), 0, 0);
    out.0
}

const EHDR: usize = 64;
const PHDR: usize = 56;
const SHDR: usize = 64;
const SYM: usize = 24;
const HASH: usize = 16;

const DT_NULL: u64 = 0;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_SYMENT: u64 = 11;
const DT_SONAME: u64 = 14;

#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;
#[cfg(not(target_arch = "aarch64"))]
const MACHINE: u16 = 62;

fn align(offset: usize) -> usize {
    offset.next_multiple_of(8)
}

struct Bytes(Vec<u8>);

impl Bytes {
    fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn half(&mut self, value: u16) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    fn word(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    fn long(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    fn pad_to(&mut self, offset: usize) {
        self.0.resize(offset, 0);
    }

    fn program_header(&mut self, kind: u32, offset: usize, size: usize, alignment: u64) {
        let (offset, size) = (offset as u64, size as u64);
        self.word(kind).word(6).long(offset).long(offset).long(offset).long(size).long(size);
        self.long(alignment);
    }

    fn section_header(
        &mut self,
        name: u32,
        kind: u32,
        offset: usize,
        size: usize,
        link: u32,
        entry: usize,
    ) {
        let (offset, size) = (offset as u64, size as u64);
        // The names of sections are not loaded; all others are.
        let (flags, address) = if name == 32 { (0, 0) } else { (2, offset) };
        self.word(name).word(kind).long(flags).long(address).long(offset).long(size);
        self.word(link).word(u32::from(kind == 11)).long(8).long(entry as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soname_stands_where_the_dynamic_section_points() {
        let file = shared_object("libcuda.so.1");
        let long = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
        // The second program header is the dynamic one.
        let dynamic = long(EHDR + PHDR + 8);
        let entry = |tag: u64| {
            (0..7)
                .map(|nth| dynamic + 16 * nth)
                .find(|at| long(*at) == tag as usize)
                .map(|at| long(at + 8))
                .unwrap()
        };
        let start = entry(DT_STRTAB) + entry(DT_SONAME);
        assert_eq!(&file[start..start + 13], b"libcuda.so.1\0");
        assert_eq!(file.len(), long(40) + 6 * SHDR, "section headers end the file");
    }
}
