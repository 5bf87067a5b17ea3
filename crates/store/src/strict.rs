//! Reading deterministic CBOR: what is there in any other form than its one form is refused where
//! it stands, so that nobody has to encode it again and compare.
//!
//! Invariant: numbers and lengths are read in their shortest form only, and lengths are always
//! given. What remains to the caller: that keys ascend ([`Strict::key_after`] sees to it), and that
//! nothing is there which encoding would leave out.

use minicbor::Decoder;
use minicbor::data::Type;

use crate::fields::Malformed;

const NUMBER: u8 = 0;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const LIST: u8 = 4;
const MAP: u8 = 5;
/// In the place of a length: it is not given.
const INDEFINITE: u8 = 31;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Number,
    Bytes,
    Text,
    List,
    Flag(bool),
    /// Something of another type, see [`Strict::other`].
    Other,
}

/// Reads one item after the other.
#[derive(Debug)]
pub(crate) struct Strict<'b> {
    bytes: &'b [u8],
    at: usize,
    /// What it is, for errors.
    what: &'static str,
}

impl<'b> Strict<'b> {
    pub fn new(bytes: &'b [u8], what: &'static str) -> Strict<'b> {
        Strict { bytes, at: 0, what }
    }

    #[cold]
    pub fn wrong(&self, why: impl std::fmt::Display) -> Malformed {
        Malformed::new(self.what, format!("{why}, at byte {}", self.at))
    }

    /// The type of the next item.
    #[inline]
    pub fn next(&self) -> Result<Next, Malformed> {
        let first = *self.bytes.get(self.at).ok_or_else(|| self.wrong(ENDS))?;
        Ok(match (first >> 5, first & 0x1f) {
            (NUMBER, _) => Next::Number,
            (BYTES | TEXT | LIST, INDEFINITE) => Next::Other,
            (BYTES, _) => Next::Bytes,
            (TEXT, _) => Next::Text,
            (LIST, _) => Next::List,
            (7, 20) => Next::Flag(false),
            (7, 21) => Next::Flag(true),
            _ => Next::Other,
        })
    }

    #[inline]
    pub fn number(&mut self) -> Result<u64, Malformed> {
        self.head(NUMBER, "a number")
    }

    #[inline]
    pub fn bytes(&mut self) -> Result<&'b [u8], Malformed> {
        let length = self.head(BYTES, "bytes")?;
        self.take(length)
    }

    #[inline]
    pub fn text(&mut self) -> Result<&'b str, Malformed> {
        let bytes = self.unchecked_text()?;
        self.checked_text(bytes)
    }

    /// The bytes of a text, for who compares them with one that is known, or checks them
    /// with [`Strict::checked_text`].
    #[inline]
    pub fn unchecked_text(&mut self) -> Result<&'b [u8], Malformed> {
        let length = self.head(TEXT, "text")?;
        self.take(length)
    }

    /// What [`Strict::unchecked_text`] gave, if it is a text.
    #[inline]
    pub fn checked_text(&self, bytes: &'b [u8]) -> Result<&'b str, Malformed> {
        str::from_utf8(bytes).map_err(|e| self.wrong(e))
    }

    /// How many items follow that belong to a list. From outside: it says nothing about how many
    /// are there.
    #[inline]
    pub fn list(&mut self) -> Result<u64, Malformed> {
        self.head(LIST, "a list")
    }

    #[inline]
    pub fn pair(&mut self) -> Result<(), Malformed> {
        match self.list()? {
            2 => Ok(()),
            _ => Err(self.wrong("a pair that is none")),
        }
    }

    /// How many keys and values follow that belong to a map; as for [`Strict::list`].
    #[inline]
    pub fn map(&mut self) -> Result<u64, Malformed> {
        self.head(MAP, "a map")
    }

    /// The next key of a map, which must be this one.
    #[inline]
    pub fn expect_key(&mut self, expected: u64) -> Result<(), Malformed> {
        match self.number()? {
            key if key == expected => Ok(()),
            key => Err(self.wrong(format_args!("key {key} instead of {expected}"))),
        }
    }

    /// The next key of a map, which must be greater than the one before.
    #[inline]
    pub fn key_after(&mut self, before: u64) -> Result<u64, Malformed> {
        match self.number()? {
            key if key > before => Ok(key),
            key => Err(self.wrong(format_args!("key {key} after {before}"))),
        }
    }

    pub fn flag(&mut self) {
        self.at += 1;
    }

    /// One item of any type, as it stands there: a newer version knows its form.
    pub fn other(&mut self) -> Result<Vec<u8>, Malformed> {
        let rest = &self.bytes[self.at..];
        let mut decoder = Decoder::new(rest);
        let datatype = decoder.datatype().map_err(|e| self.wrong(e))?;
        if datatype == Type::Break {
            return Err(self.wrong("an end of something that has not begun"));
        }
        decoder.skip().map_err(|e| self.wrong(e))?;
        let item = rest.get(..decoder.position());
        let item = item.ok_or_else(|| self.wrong(ENDS))?;
        self.at += item.len();
        Ok(item.to_owned())
    }

    /// Nothing may follow.
    #[inline]
    pub fn end(&self) -> Result<(), Malformed> {
        match self.at == self.bytes.len() {
            true => Ok(()),
            false => Err(self.wrong("more than belongs to it")),
        }
    }

    /// The number that every item begins with. Most are small, and read where this is called.
    #[inline]
    fn head(&mut self, major: u8, expected: &'static str) -> Result<u64, Malformed> {
        match self.bytes.get(self.at) {
            Some(first) if first >> 5 == major && first & 0x1f < 24 => {
                self.at += 1;
                Ok(u64::from(first & 0x1f))
            }
            _ => {
                let number = self.long_head(major);
                number.ok_or_else(|| self.no_head(major, expected))
            }
        }
    }

    /// The same for any number; `None` if it is not there in its shortest form.
    #[inline(never)]
    fn long_head(&mut self, major: u8) -> Option<u64> {
        let (first, digits) = self.bytes.get(self.at..)?.split_first()?;
        if first >> 5 != major {
            return None;
        }
        // Each length with the least number that needs it.
        let (length, number, least) = match first & 0x1f {
            small @ 0..24 => (0, small.into(), 0),
            24 => (1, u8::from_be_bytes(*digits.first_chunk()?).into(), 24),
            25 => (2, u16::from_be_bytes(*digits.first_chunk()?).into(), 1 << 8),
            26 => (
                4,
                u32::from_be_bytes(*digits.first_chunk()?).into(),
                1 << 16,
            ),
            27 => (8, u64::from_be_bytes(*digits.first_chunk()?), 1 << 32),
            _ => return None,
        };
        if number < least {
            return None;
        }
        self.at += 1 + length;
        Some(number)
    }

    /// Why there is no number that an item of this type begins with.
    #[cold]
    fn no_head(&self, major: u8, expected: &'static str) -> Malformed {
        let length = |first: u8| match first & 0x1f {
            small @ 24..28 => 1 << (small - 24),
            _ => 0,
        };
        match self.bytes.get(self.at..).unwrap_or_default() {
            [] => self.wrong(ENDS),
            [first, ..] if first >> 5 != major || first & 0x1f > 27 => {
                self.wrong(format_args!("no {expected}"))
            }
            [first, digits @ ..] if digits.len() < length(*first) => self.wrong(ENDS),
            _ => self.wrong("a number that is not in its shortest form"),
        }
    }

    #[inline]
    fn take(&mut self, length: u64) -> Result<&'b [u8], Malformed> {
        let rest = &self.bytes[self.at..];
        let length = usize::try_from(length).ok().filter(|l| *l <= rest.len());
        let length = length.ok_or_else(|| self.wrong(ENDS))?;
        self.at += length;
        Ok(&rest[..length])
    }
}

const ENDS: &str = "the end";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn numbers_are_read_in_their_shortest_form_only() {
        for number in [
            0,
            23,
            24,
            255,
            256,
            65_535,
            65_536,
            u64::from(u32::MAX),
            1 << 32,
            u64::MAX,
        ] {
            let mut shortest = minicbor::Encoder::new(Vec::new());
            shortest.u64(number).unwrap();
            let shortest = shortest.into_writer();
            let mut strict = Strict::new(&shortest, "x");
            assert_eq!(strict.number().unwrap(), number);
            strict.end().unwrap();
            for (tag, length) in [(0x18, 1), (0x19, 2), (0x1a, 4), (0x1b, 8)] {
                let digits = &number.to_be_bytes()[8 - length..];
                let longer = [&[tag], digits].concat();
                if longer.len() > shortest.len() {
                    assert!(Strict::new(&longer, "x").number().is_err(), "{longer:02x?}");
                }
            }
        }
    }

    #[test]
    fn what_is_too_short_or_of_another_type_is_an_error() {
        for bytes in [
            &[][..],
            &[0x42, 1],
            &[0x5f],
            &[0x61, 0xff],
            &[0x9b, 0, 0],
            &[0x1c],
            &[0xff],
        ] {
            assert!(Strict::new(bytes, "x").number().is_err());
            assert!(Strict::new(bytes, "x").bytes().is_err());
            assert!(Strict::new(bytes, "x").text().is_err());
            assert!(Strict::new(bytes, "x").list().is_err());
            assert!(Strict::new(bytes, "x").map().is_err());
        }
    }
}
