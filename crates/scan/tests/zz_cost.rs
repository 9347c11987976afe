use mmb_scan::{Pattern, PatternSet, Scanner};
use std::ops::ControlFlow;
fn cpu() -> f64 {
    let s = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let f: Vec<&str> = s.rsplit(')').next().unwrap().split_whitespace().collect();
    (f[11].parse::<f64>().unwrap() + f[12].parse::<f64>().unwrap()) / 100.0
}
struct R(u64);
impl R { fn n(&mut self) -> u64 { self.0 ^= self.0 << 13; self.0 ^= self.0 >> 7; self.0 ^= self.0 << 17; self.0 } }
#[test]
fn zz() {
    let alphabets: [(&str, &[u8]); 4] = [("lower", b"abcdefghijklmnopqrstuvwxyz"), ("upper", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"), ("mixed", b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"), ("hex", b"0123456789abcdef")];
    let texts: [(&str, &[u8]); 4] = [("bench", b"abcdefghijklmnopqrstuvwxyz    01"), ("letters", b"abcdefghijklmnopqrstuvwxyz"), ("digits", b"0123456789"), ("mixed", b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")];
    for count in [1000usize, 10_000] {
    for (an, a) in alphabets {
        let mut r = R(88172645463325252);
        let p: Vec<Pattern> = (0..count).map(|i| { let l = 8 + r.n() % 9; Pattern::text(i as u32, (0..l).map(|_| a[(r.n() >> 20) as usize % a.len()]).collect::<Vec<u8>>()) }).collect();
        let set = PatternSet::compile(&p).unwrap();
        let mut scanner = Scanner::new(set.pool_bytes(10)).unwrap();
        scanner.prepare(&set).unwrap();
        for (tn, t) in texts {
            let text: Vec<u8> = (0..8 << 20).map(|_| t[(r.n() >> 20) as usize % t.len()]).collect();
            let mut state = scanner.open(&set).unwrap();
            let mut calls = 0u64;
            let (b, mut bytes) = (cpu(), 0u64);
            while cpu() - b < 0.4 {
                for c in text.chunks(1448) { let _ = scanner.scan(&mut state, c, &mut |_, _| { calls += 1; ControlFlow::Continue(()) }); }
                bytes += text.len() as u64;
            }
            println!("{count} {an:6} in {tn:8} {:.2} c/B, {calls} calls in {bytes} bytes, state {}", (cpu() - b) * 2.596e9 / bytes as f64, set.state_bytes());
            scanner.close(state);
        }
    } }
}
