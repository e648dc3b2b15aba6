//! A form by its parts (RFC 7578): what each is called, what it is, what it holds; not the boundary between them, which a
//! client makes anew for each attempt.

use bytes::Bytes;
use futures_util::{FutureExt, stream};
use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// Name, file name, type and content of each part. None for another type of body, and for one that cannot be taken apart.
pub(super) fn parts(headers: &HeaderMap, body: &Bytes) -> Option<Vec<[Vec<u8>; 4]>> {
    let content_type = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let boundary = multer::parse_boundary(content_type).ok()?;
    let whole = stream::iter([Ok::<_, std::convert::Infallible>(body.clone())]);
    let mut form = multer::Multipart::new(whole, boundary);
    // The whole body is there, so the reader never waits.
    let read = async {
        let mut parts = Vec::new();
        while let Some(part) = form.next_field().await.ok()? {
            let name = optional(part.name());
            let file_name = optional(part.file_name());
            let media_type = part.headers().get(CONTENT_TYPE).map_or_else(Vec::new, |value| value.as_bytes().to_vec());
            parts.push([name, file_name, media_type, part.bytes().await.ok()?.to_vec()]);
        }
        Some(parts)
    };
    read.now_or_never().flatten()
}

/// "None" and "empty" are two things.
fn optional(text: Option<&str>) -> Vec<u8> {
    text.map_or_else(Vec::new, |text| [b"=", text.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn form(boundary: &str, parts: &[(&str, &str)]) -> Option<Vec<[Vec<u8>; 4]>> {
        let mut body = String::new();
        for (disposition, content) in parts {
            body += &format!("--{boundary}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n{content}\r\n");
        }
        body += &format!("--{boundary}--\r\n");
        let content_type = format!("multipart/form-data; boundary={boundary}");
        let content_type = HeaderValue::try_from(content_type).expect("a header value");
        super::parts(&HeaderMap::from_iter([(CONTENT_TYPE, content_type)]), &Bytes::from(body))
    }

    /// Fails when the body is taken as it is.
    #[test]
    fn the_boundary_does_not_count() {
        let parts = [("name=\"a\"", "1"), ("name=\"f\"; filename=\"x.bin\"", "--one\r\n")];
        assert!(form("two", &parts).is_some());
        assert_eq!(form("two", &parts), form("three", &parts));
    }

    /// Fails when any of the four is left out, or parts run into each other.
    #[test]
    fn everything_in_a_part_counts() {
        let forms = [
            form("b", &[("name=\"a\"", "1")]),
            form("b", &[("name=\"a\"", "2")]),
            form("b", &[("name=\"b\"", "1")]),
            form("b", &[("name=\"a\"; filename=\"\"", "1")]),
            form("b", &[("name=\"a\"; filename=\"x\"", "1")]),
            form("b", &[("name=\"a\"\r\nContent-Type: text/plain", "1")]),
            form("b", &[("name=\"a\"", "1"), ("name=\"a\"", "1")]),
        ];
        for (at, left) in forms.iter().enumerate() {
            assert!(left.is_some(), "{at}");
            for right in &forms[at + 1..] {
                assert_ne!(left, right);
            }
        }
    }

    /// Fails when a broken form is taken for an empty one.
    #[test]
    fn what_cannot_be_taken_apart_has_no_parts() {
        let headers = |value| HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(value))]);
        let broken = Bytes::from_static(b"--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nhalf");
        assert_eq!(super::parts(&headers("multipart/form-data; boundary=b"), &broken), None);
        assert_eq!(super::parts(&headers("multipart/form-data"), &broken), None);
        assert_eq!(super::parts(&headers("application/json"), &broken), None);
    }
}
