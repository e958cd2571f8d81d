use super::*;
use crate::testing::bytes;
use proptest::prelude::*;
use std::vec::Vec;

const CLOCKS: Timestamps = Timestamps { value: 0x0102_0304, echo: 0x0506_0708 };

fn emitted(options: &TcpOptions) -> Vec<u8> {
    let mut buf = [0xee; 40];
    let len = options.emit(&mut buf);
    assert_eq!(len, options.emitted_len());
    buf[..len].to_vec()
}

fn blocks(count: u32) -> SackBlocks {
    (1..=count).map(|i| (i * 100, i * 100 + 50)).collect()
}

#[test]
fn layout_of_a_syn() {
    let options = TcpOptions {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some(CLOCKS),
        sack: SackBlocks::EMPTY,
        accecn: None,
    };
    let bytes = [2, 4, 0x05, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 3, 3, 7];
    assert_eq!(emitted(&options), bytes);
    assert_eq!(TcpOptions::parse(&bytes), Ok(options));
}

#[test]
fn layout_of_data() {
    // RFC 7323 appendix A.
    let options = TcpOptions { timestamps: Some(CLOCKS), ..TcpOptions::NONE };
    let bytes = [1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8];
    assert_eq!(emitted(&options), bytes);
    assert_eq!(TcpOptions::parse(&bytes), Ok(options));
    // The same by the general path, since an END follows.
    assert_eq!(TcpOptions::parse(&[&bytes[..], &[0, 0, 0, 0]].concat()), Ok(options));
}

#[test]
fn layout_of_sack_permitted_alone() {
    let options = TcpOptions { sack_permitted: true, ..TcpOptions::NONE };
    assert_eq!(emitted(&options), [1, 1, 4, 2]);
}

#[test]
fn layout_of_sack() {
    // RFC 2018 §3: kind 5, length 10 for one block, left edge, right edge.
    let mut sack = SackBlocks::EMPTY;
    assert!(sack.push(0x0102_0304, 0x0506_0708));
    let options = TcpOptions { sack, ..TcpOptions::NONE };
    let bytes = [1, 1, 5, 10, 1, 2, 3, 4, 5, 6, 7, 8];
    assert_eq!(emitted(&options), bytes);
    assert_eq!(TcpOptions::parse(&bytes), Ok(options));
}

#[test]
fn four_blocks_alone_and_three_with_timestamps() {
    // RFC 2018 §3: 8 * 4 + 2 = 34 of 40 bytes; with the 12 of timestamps, 8 * 3 + 2.
    let alone = TcpOptions { sack: blocks(4), ..TcpOptions::NONE };
    assert_eq!(TcpOptions::parse(&emitted(&alone)), Ok(alone));
    assert_eq!(alone.emitted_len(), 36);

    let with_timestamps = TcpOptions { timestamps: Some(CLOCKS), sack: blocks(4), ..TcpOptions::NONE };
    assert_eq!(with_timestamps.emitted_len(), 40);
    let expected = TcpOptions { sack: blocks(3), ..with_timestamps };
    assert_eq!(TcpOptions::parse(&emitted(&with_timestamps)), Ok(expected));
}

#[test]
fn blocks_yield_to_everything_else() {
    let full = TcpOptions {
        mss: Some(1),
        window_scale: Some(1),
        sack_permitted: true,
        timestamps: Some(CLOCKS),
        sack: blocks(4),
        accecn: None,
    };
    // 20 bytes are left, 4 for kind and length: two blocks.
    assert_eq!(full.sack_blocks_that_fit(), 2);
    assert_eq!(emitted(&full).len(), 40);
}

#[test]
fn both_orders_of_accurate_ecn_in_every_length() {
    // RFC 9768 figure 4 and table 5: kind 172 is EE0B, ECEB, EE1B, kind 174 is EE1B, ECEB, EE0B; 2 + 3n
    // bytes.
    let (e0, ce, e1) = (Some(0x01_02_03), Some(0x04_05_06), Some(0x07_08_09));
    let cases: [(&[u8], AccEcn); 8] = [
        (&[1, 1, 172, 2], AccEcn::default()),
        (&[1, 1, 1, 172, 5, 1, 2, 3], AccEcn { ee0b: e0, ..AccEcn::default() }),
        (&[172, 8, 1, 2, 3, 4, 5, 6], AccEcn { ee0b: e0, eceb: ce, ee1b: None }),
        (&[1, 172, 11, 1, 2, 3, 4, 5, 6, 7, 8, 9], AccEcn { ee0b: e0, eceb: ce, ee1b: e1 }),
        (&[1, 1, 1, 174, 5, 7, 8, 9], AccEcn { ee1b: e1, ..AccEcn::default() }),
        (&[174, 8, 7, 8, 9, 4, 5, 6], AccEcn { ee0b: None, eceb: ce, ee1b: e1 }),
        (&[1, 174, 11, 7, 8, 9, 4, 5, 6, 1, 2, 3], AccEcn { ee0b: e0, eceb: ce, ee1b: e1 }),
        (&[1, 1, 174, 2], AccEcn::default()),
    ];
    for (bytes, accecn) in cases {
        let options = TcpOptions { accecn: Some(accecn), ..TcpOptions::NONE };
        assert_eq!(TcpOptions::parse(bytes), Ok(options), "{bytes:?}");
        assert_eq!(options.emitted_len(), bytes.len(), "{bytes:?}");
        assert_eq!(TcpOptions::parse(&emitted(&options)), Ok(options), "{bytes:?}");
        // All fields, and none, can be sent in either order; order 0 is used.
        if bytes.contains(&172) || [1, 2].contains(&accecn.fields()) {
            assert_eq!(emitted(&options), bytes);
        }
    }
    // §3.2.3: of any other length, the whole fields count and the rest is padding.
    let odd = TcpOptions { accecn: Some(AccEcn { ee0b: e0, eceb: ce, ee1b: None }), ..TcpOptions::NONE };
    assert_eq!(TcpOptions::parse(&[172, 10, 1, 2, 3, 4, 5, 6, 7, 8]), Ok(odd));
}

#[test]
fn accurate_ecn_beside_the_others() {
    // A SYN-ACK with everything: 20 bytes and 12. A data segment: 12 of timestamps, 8, and 20 for two SACK
    // blocks.
    let accecn = Some(AccEcn { ee0b: Some(1), eceb: Some(0), ee1b: Some(1) });
    let syn_ack = TcpOptions {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some(CLOCKS),
        sack: SackBlocks::EMPTY,
        accecn,
    };
    assert_eq!(emitted(&syn_ack).len(), 32);
    assert_eq!(TcpOptions::parse(&emitted(&syn_ack)), Ok(syn_ack));
    let short = Some(AccEcn { ee0b: Some(1), eceb: Some(2), ee1b: None });
    let ack = TcpOptions { timestamps: Some(CLOCKS), sack: blocks(4), accecn: short, ..TcpOptions::NONE };
    assert_eq!(ack.sack_blocks_that_fit(), 2);
    assert_eq!(TcpOptions::parse(&emitted(&ack)), Ok(TcpOptions { sack: blocks(2), ..ack }));
}

#[test]
fn unknown_options_are_skipped() {
    let bytes = [253, 4, 0xf9, 0x89, 2, 4, 0x05, 0xb4, 34, 2, 1, 1, 1, 3, 3, 9];
    let expected = TcpOptions { mss: Some(1460), window_scale: Some(9), ..TcpOptions::NONE };
    assert_eq!(TcpOptions::parse(&bytes), Ok(expected));
}

#[test]
fn nothing_counts_after_the_end() {
    assert_eq!(TcpOptions::parse(&[0, 2, 4, 5]), Ok(TcpOptions::NONE));
    assert_eq!(TcpOptions::parse(&[1, 0, 2, 0]), Ok(TcpOptions::NONE));
}

#[test]
fn impossible_lengths_are_refused() {
    for bytes in [&[2, 0, 0, 0][..], &[2, 1, 0, 0], &[2, 5, 0, 0], &[99, 0, 0, 0], &[1, 1, 1, 2], &[8, 255]] {
        assert_eq!(TcpOptions::parse(bytes), Err(ParseError::OptionLength), "{bytes:?}");
    }
}

#[test]
fn known_options_of_a_wrong_length_are_ignored() {
    for bytes in [
        &[2, 3, 5, 1][..],
        &[2, 2, 1, 1],
        &[3, 4, 7, 7],
        &[3, 2, 1, 1],
        &[4, 3, 0, 1],
        &[8, 9, 1, 2, 3, 4, 5, 6, 7],
        &[5, 2, 1, 1],
        &[5, 9, 1, 2, 3, 4, 5, 6, 7],
    ] {
        assert_eq!(TcpOptions::parse(bytes), Ok(TcpOptions::NONE), "{bytes:?}");
    }
}

#[test]
fn window_scale_is_kept_as_sent() {
    assert_eq!(TcpOptions::parse(&[1, 3, 3, 200]).unwrap().window_scale, Some(200));
}

#[test]
fn sack_blocks_fill_up() {
    let mut sack = blocks(3);
    assert_eq!((sack.len(), sack.is_empty()), (3, false));
    assert!(sack.push(400, 450));
    assert!(!sack.push(500, 550));
    assert_eq!(sack, blocks(4));
    assert_eq!(sack.as_slice(), [(100, 150), (200, 250), (300, 350), (400, 450)]);
    assert_eq!(sack.iter().next_back(), Some((400, 450)));
    assert_eq!(std::format!("{:?}", blocks(1)), "[(100, 150)]");
}

proptest! {
    #[test]
    fn any_bytes_are_survived(options in bytes(60)) {
        let _ = TcpOptions::parse(&options);
    }

    #[test]
    fn etherparse_agrees_on_what_it_accepts(options in bytes(10).prop_map(|mut bytes| {
        // Mostly small numbers, which are kinds and lengths.
        for byte in &mut bytes {
            *byte %= 12;
        }
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    })) {
        use etherparse::TcpOptionElement as Option_;
        let mut expected = TcpOptions::NONE;
        for option in etherparse::TcpOptionsIterator::from_slice(&options) {
            match option {
                Ok(Option_::Noop) => {}
                Ok(Option_::MaximumSegmentSize(mss)) => expected.mss = Some(mss),
                Ok(Option_::WindowScale(shift)) => expected.window_scale = Some(shift),
                Ok(Option_::SelectiveAcknowledgementPermitted) => expected.sack_permitted = true,
                Ok(Option_::SelectiveAcknowledgement(first, more)) => {
                    expected.sack = core::iter::once(first).chain(more.into_iter().flatten()).collect();
                }
                Ok(Option_::Timestamp(value, echo)) => expected.timestamps = Some(Timestamps { value, echo }),
                // It stops at unknown options and wrong lengths, which we skip.
                Err(_) => return Ok(()),
            }
        }
        prop_assert_eq!(TcpOptions::parse(&options), Ok(expected));
    }
}
