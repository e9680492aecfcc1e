//! One JPEG or PNG file as RGB bytes.
//!
//! The format is told by content. The size in the header is checked before anything is allocated for the pixels. One image
//! takes its file twice (at most 256 MiB each) and its pixels, at most 192 MiB as they are decoded, up to four times: the
//! coefficients of a progressive JPEG are two bytes each, and what is not RGB is converted.

use std::io::Cursor;
use std::path::Path;

use image::imageops::FilterType;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};

use super::files::{LONGEST_IMAGE, read_bytes};
use crate::data::{MIB, shown};
use crate::{Error, Result};

/// Handling of an image whose size is not the set's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// Refuses the image.
    Exact,
    /// Scale it with a triangle filter until it just covers the size, and cut what juts out on both sides alike.
    Cover,
}

/// Beyond this a photograph is scaled down before anyone trains on it; a header that says more is taken for a lie. A batch
/// of CIFAR-10 has a row for each image.
const LONGEST_SIDE: u32 = 65_536;
/// Memory that the pixels of an image may take, and what its decoder may allocate besides: RGB of 67 million pixels.
const MOST_MEMORY: u64 = 192 * MIB;
/// Deflate expands at most 1032 times. A JPEG has at least one bit for each 8×8 block of each component, which is
/// some 1400 times at the coarsest sampling. A header that asks for more than this is not backed by its file.
const MOST_EXPANSION: u64 = 4096;

/// Decodes a file to RGB planes of `height`×`width`; `planes` has 3 · height · width bytes.
pub(super) fn rgb_planes(
    path: &Path,
    height: usize,
    width: usize,
    fit: Fit,
    planes: &mut [u8],
) -> Result<()> {
    let bytes = read_bytes(path, LONGEST_IMAGE)?;
    let decoder = open(path, &bytes)?;
    let found = sides(&decoder);
    let same = found == (height, width);
    if !same && fit == Fit::Exact {
        return Err(wrong_size(path, found, (height, width)));
    }
    let mut image = DynamicImage::from_decoder(decoder).map_err(|e| corrupt(path, &e))?;
    if !same {
        // Sides are at most LONGEST_SIDE or were asked for by the caller, who has `planes` of that size.
        image = image.resize_to_fill(width as u32, height as u32, FilterType::Triangle);
    }
    let image = image.into_rgb8();
    split_planes(image.as_raw(), planes);
    Ok(())
}

/// Height and width of an image all of which can be decoded.
#[cfg(feature = "cli")]
pub(super) fn whole(path: &Path) -> Result<(usize, usize)> {
    let bytes = read_bytes(path, LONGEST_IMAGE)?;
    let decoder = open(path, &bytes)?;
    let found = sides(&decoder);
    DynamicImage::from_decoder(decoder).map_err(|e| corrupt(path, &e))?;
    Ok(found)
}

/// Height and width of an image from its header.
pub(super) fn dimensions(path: &Path) -> Result<(usize, usize)> {
    let bytes = read_bytes(path, LONGEST_IMAGE)?;
    Ok(sides(&open(path, &bytes)?))
}

/// A PNG of 8-bit RGB as its bytes: height, width and the pixels, row by row, R G B of a pixel together.
pub(super) fn rgb_png(path: &Path) -> Result<(usize, usize, Vec<u8>)> {
    const EXPECTED: &str = "a PNG of 8-bit RGB";
    let bytes = read_bytes(path, LONGEST_IMAGE)?;
    if image::guess_format(&bytes).ok() != Some(ImageFormat::Png) {
        return Err(Error::format(path, "this is not a PNG", EXPECTED));
    }
    let decoder = open(path, &bytes)?;
    if decoder.color_type() != image::ColorType::Rgb8 {
        let problem = format!("the pixels are {:?}", decoder.color_type());
        return Err(Error::format(path, problem, EXPECTED));
    }
    let (height, width) = sides(&decoder);
    // `open` has held the size against that of the file.
    let mut pixels = vec![0; decoder.total_bytes() as usize];
    decoder
        .read_image(&mut pixels)
        .map_err(|e| corrupt(path, &e))?;
    Ok((height, width, pixels))
}

/// R G B of each pixel together → all R, all G, all B.
pub(super) fn split_planes(pixels: &[u8], planes: &mut [u8]) {
    let (red, rest) = planes.split_at_mut(pixels.len() / 3);
    let (green, blue) = rest.split_at_mut(pixels.len() / 3);
    for (((rgb, r), g), b) in pixels.chunks_exact(3).zip(red).zip(green).zip(blue) {
        (*r, *g, *b) = (rgb[0], rgb[1], rgb[2]);
    }
}

/// The message for an image that is not of the size of the others.
pub(super) fn wrong_size(path: &Path, found: (usize, usize), wanted: (usize, usize)) -> Error {
    Error::format(
        path,
        format!("the image is {}×{} (height×width)", found.0, found.1),
        format!("{}×{}", wanted.0, wanted.1),
    )
}

fn open<'a>(path: &Path, bytes: &'a [u8]) -> Result<impl ImageDecoder + 'a> {
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(MOST_MEMORY);
    let format = image::guess_format(bytes).ok();
    let format = match format {
        Some(format @ (ImageFormat::Png | ImageFormat::Jpeg)) => format,
        _ => {
            let problem = match bytes.len() {
                0 => "the file is empty".to_owned(),
                _ => "this is neither a JPEG nor a PNG".to_owned(),
            };
            return Err(Error::format(path, problem, "a JPEG or PNG image"));
        }
    };
    // The decoder makes up what is missing at the end of a JPEG, so it is looked for here.
    if format == ImageFormat::Jpeg && !jpeg_is_whole(bytes) {
        let problem = format!("truncated: no end of the image in {} bytes", bytes.len());
        return Err(Error::format(path, problem, "a whole JPEG image"));
    }
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    let decoder = reader.into_decoder().map_err(|e| corrupt(path, &e))?;
    let (width, height) = decoder.dimensions();
    if width.max(height) > LONGEST_SIDE || decoder.total_bytes() > MOST_MEMORY {
        return Err(Error::format(
            path,
            format!("the header declares {height}×{width} pixels"),
            format!(
                "sides of at most {LONGEST_SIDE} and {} MiB of pixels",
                MOST_MEMORY / MIB
            ),
        ));
    }
    if decoder.total_bytes() / MOST_EXPANSION > bytes.len() as u64 || width == 0 || height == 0 {
        return Err(Error::format(
            path,
            format!(
                "the header declares {height}×{width} pixels, but the file has {} bytes",
                bytes.len()
            ),
            "an image that the file has room for",
        ));
    }
    Ok(decoder)
}

fn sides(decoder: &impl ImageDecoder) -> (usize, usize) {
    let (width, height) = decoder.dimensions();
    (height as usize, width as usize)
}

fn corrupt(path: &Path, error: &image::ImageError) -> Error {
    Error::format(
        path,
        format!(
            "the image cannot be decoded ({})",
            shown(&error.to_string(), 120)
        ),
        "a whole JPEG or PNG image",
    )
}

/// True when an end-of-image marker follows the start of the first scan.
///
/// Segments before the scan are stepped over, since an embedded thumbnail has an end marker of its own.
fn jpeg_is_whole(bytes: &[u8]) -> bool {
    let mut at = 2;
    loop {
        match bytes.get(at..at + 2) {
            Some([0xff, 0xff]) => at += 1,
            Some([0xff, marker]) => {
                let Some(&[high, low]) = bytes.get(at + 2..at + 4) else {
                    return false;
                };
                at += 2 + usize::from(u16::from_be_bytes([high, low]));
                // Start of scan: what follows is the coded image, in which FF D9 can only be the end.
                if *marker == 0xda {
                    let scan = bytes.get(at..).unwrap_or(&[]);
                    return scan.windows(2).any(|pair| pair == [0xff, 0xd9]);
                }
            }
            // Not a marker where one should be; what is wrong the decoder can say better.
            Some(_) => return true,
            None => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_are_split() {
        let mut planes = [0; 6];
        split_planes(&[1, 2, 3, 4, 5, 6], &mut planes);
        assert_eq!(planes, [1, 4, 2, 5, 3, 6]);
    }

    #[test]
    fn a_jpeg_is_whole_only_with_its_own_end() {
        // A thumbnail with an end of its own in an APP1 segment, then a scan.
        let mut bytes = vec![0xff, 0xd8, 0xff, 0xe1, 0, 6, 9, 9, 0xff, 0xd9];
        bytes.extend([0xff, 0xda, 0, 3, 1, 0x55, 0xff, 0x00, 0x55]);
        assert!(!jpeg_is_whole(&bytes));
        bytes.extend([0xff, 0xd9]);
        assert!(jpeg_is_whole(&bytes));
        for end in 0..bytes.len() {
            assert!(!jpeg_is_whole(&bytes[..end]), "{end}");
        }
    }
}
