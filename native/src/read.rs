//! Big-endian integers and slices out of bytes of any length: None past the end, never a panic.

pub fn slice(data: &[u8], at: usize, length: usize) -> Option<&[u8]> {
    data.get(at..at.checked_add(length)?)
}

pub fn array<const N: usize>(data: &[u8], at: usize) -> Option<[u8; N]> {
    slice(data, at, N)?.try_into().ok()
}

pub fn byte(data: &[u8], at: usize) -> Option<u8> {
    data.get(at).copied()
}

pub fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(array(data, at)?))
}

pub fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(array(data, at)?))
}

pub fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(array(data, at)?))
}

/// Read a size that is followed by as many bytes; a u32 always fits a usize of the machines that this is built for.
pub fn size_at(data: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32_at(data, at)?).ok()
}
