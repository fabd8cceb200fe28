//! Where devices are.

use std::fmt;
use std::str::FromStr;

/// Where a device is on the PCI bus of a machine: no two of a machine's are at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PciPlace {
    /// The bus's domain.
    pub domain: u32,
    /// The bus.
    pub bus: u32,
    /// The slot of the bus.
    pub device: u32,
    /// Which of the functions there.
    pub function: u32,
}

/// What is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoPlace;

impl FromStr for PciPlace {
    type Err = NoPlace;

    /// As in the words of `lspci -D`: `0000:17:00.0`.
    fn from_str(text: &str) -> Result<Self, NoPlace> {
        let number = |digits: &str| u32::from_str_radix(digits, 16).map_err(|_| NoPlace);
        let (bus, function) = text.rsplit_once('.').ok_or(NoPlace)?;
        let (bus, device) = bus.rsplit_once(':').ok_or(NoPlace)?;
        let (domain, bus) = bus.rsplit_once(':').ok_or(NoPlace)?;
        Ok(PciPlace {
            domain: number(domain)?,
            bus: number(bus)?,
            device: number(device)?,
            function: number(function)?,
        })
    }
}

impl fmt::Display for PciPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PciPlace { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_are_written() {
        let place = PciPlace { domain: 1, bus: 0x17, device: 0x1f, function: 2 };
        assert_eq!(place.to_string(), "0001:17:1f.2");
        for text in ["0001:17:1f.2", "00000001:17:1F.2"] {
            assert_eq!(text.parse(), Ok(place), "{text}");
        }
        for text in ["", "17:1f.2", "0001:17:1f", "0001:17:1f.", "0001:xx:1f.2", "0001:17.1f:2"] {
            assert_eq!(text.parse::<PciPlace>(), Err(NoPlace), "{text}");
        }
    }
}
