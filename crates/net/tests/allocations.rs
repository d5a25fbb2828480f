//! A training step allocates nothing of our own after the first.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use untuned::optimizers::PolyakAdam;
use untuned::{RunInfo, Session};
use untuned_net::cpu::Cpu;
use untuned_net::device::Device;
use untuned_net::models::{Feed, Gpt, GptShape, Lstm, LstmShape, Network, Noise, SCALARS, T5, T5Shape};
use untuned_net::space::ArenaSpace;

/// Counts allocations, but for those of single bytes and those aligned to a cache line: the `gemm` crate keeps a list of flags and
/// packs into buffers of its own at every product, and nothing of ours is aligned so.
struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if (2..64).contains(&layout.align()) {
            COUNT.fetch_add(1, Ordering::Relaxed);
        }
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn counted(device: &Cpu<f32>, network: &mut dyn Network<Cpu<f32>>, feed: Feed<'_>) -> usize {
    let mut x = device.parameters(&network.layout().initial(1)).unwrap();
    let mut dx = device.parameters(&vec![0.0; x.len()]).unwrap();
    let method = PolyakAdam::default().build(&RunInfo::new(40)).unwrap();
    let space = ArenaSpace::new(device, network.layout(), &method);
    let mut session = Session::reserving(method, space, SCALARS).unwrap();
    session.start(&x).unwrap();
    device.inside(|| {
        let mut step = |step: u32| {
            network.gradient(device, feed, Some(Noise { seed: 1, step }), &x, &mut dx, session.sums());
            session.advance_reading(&mut x, &dx, |sums| Some(sums[0])).unwrap();
        };
        // Both threads must have met the largest of everything: which does what in a step is left to chance.
        (0..20).for_each(&mut step);
        let before = COUNT.load(Ordering::Relaxed);
        (20..40).for_each(&mut step);
        COUNT.load(Ordering::Relaxed) - before
    })
}

#[test]
fn a_step_allocates_nothing() {
    let device = Cpu::<f32>::new(Some(2)).unwrap();
    let ids: Vec<u32> = (0..4 * 40).map(|i| i * i % 11).collect();
    let feed = Feed { inputs: &ids, targets: &ids, batch: 4 };
    let shape = GptShape { vocabulary: 11, context: 40, blocks: 2, width: 16, heads: 2, dropout: 0.2 };
    let mut gpt = Gpt::new(&device, shape, 4).unwrap();
    assert_eq!(counted(&device, &mut gpt, feed), 0, "GPT");
    let shape = LstmShape { vocabulary: 11, ..LstmShape::TINY };
    let mut lstm = Lstm::new(&device, shape, 4, 40).unwrap();
    assert_eq!(counted(&device, &mut lstm, feed), 0, "the LSTM");
    let shape = T5Shape {
        vocabulary: 11,
        width: 16,
        heads: 2,
        head_width: 8,
        feed_forward: 24,
        layers: 2,
        inputs: 40,
        targets: 40,
    };
    let mut t5 = T5::new(&device, shape, 4).unwrap();
    assert_eq!(counted(&device, &mut t5, feed), 0, "T5");
    let counts = COUNT.load(Ordering::Relaxed);
    drop(vec![1f32; 10]);
    assert_eq!(COUNT.load(Ordering::Relaxed), counts + 1, "allocations are counted");
}
