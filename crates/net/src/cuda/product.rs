//! Products of matrices, by cuBLASLt.
//!
//! One of the library's proposals for a shape is taken and kept. Nothing is timed for it: which algorithm runs, and so every bit of
//! the result, depends on the shape, the device and the library's version alone.
#![allow(unsafe_code)]

use super::Cuda;
use super::commands::Command;
use crate::device::{DeviceError, Write};
use cudarc::cublaslt::sys as lt;
use cudarc::driver::sys;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};
use untuned_cuda::device::{Context, Memory};

/// How numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// Four bytes.
    F32,
    /// Two bytes: the upper half of an f32.
    Bf16,
}

impl Type {
    /// Bytes of a number.
    pub fn size(self) -> usize {
        match self {
            Type::F32 => 4,
            Type::Bf16 => 2,
        }
    }
}

/// A matrix in device memory, row by row.
#[derive(Debug, Clone, Copy)]
pub struct Matrix {
    /// Where it begins.
    pub address: u64,
    /// The outer size.
    pub rows: usize,
    /// The inner size.
    pub columns: usize,
    /// From row to row.
    pub stride: usize,
    /// Of its numbers.
    pub kind: Type,
    transposed: bool,
}

impl Matrix {
    /// Rows one after the other.
    pub fn new(address: u64, rows: usize, columns: usize, kind: Type) -> Self {
        Self::strided(address, rows, columns, columns, kind)
    }

    /// Rows with gaps.
    pub fn strided(address: u64, rows: usize, columns: usize, stride: usize, kind: Type) -> Self {
        Self { address, rows, columns, stride, kind, transposed: false }
    }

    /// Its transpose, as a factor.
    pub fn t(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }

    fn outer(&self) -> usize {
        if self.transposed { self.columns } else { self.rows }
    }

    fn inner(&self) -> usize {
        if self.transposed { self.rows } else { self.columns }
    }
}

/// What a product's algorithm depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Shape {
    /// Rows and columns of the result, and the size that is summed over.
    sizes: [usize; 3],
    /// Of both factors and the result.
    strides: [usize; 3],
    transposed: [bool; 2],
    kinds: [Type; 3],
    /// How many bytes divide the addresses, at most 16.
    aligned: [u32; 3],
    add: bool,
}

struct Plan {
    operation: lt::cublasLtMatmulDesc_t,
    layouts: [lt::cublasLtMatrixLayout_t; 3],
    algorithm: lt::cublasLtMatmulAlgo_t,
    add: bool,
}

/// The library, and the plans that were made.
pub struct Products {
    handle: lt::cublasLtHandle_t,
    /// As the library counts: 130100 is 13.1.0.
    version: usize,
    /// Whether products of f32 may be rounded to TF32 first.
    tf32: bool,
    room: Memory,
    plans: Mutex<(HashMap<Shape, usize>, Vec<Plan>)>,
}

// SAFETY: the library's handles may be used from any thread, and the plans are behind a lock.
unsafe impl Send for Products {}
// SAFETY: as above.
unsafe impl Sync for Products {}

/// How many the library is asked for.
const PROPOSALS: usize = 8;
/// What the library may use beside the operands: as much as its makers advise for Hopper.
const ROOM: usize = 32 << 20;

fn check(context: &Context, what: &str, status: lt::cublasStatus_t) -> Result<(), DeviceError> {
    match status {
        lt::cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(()),
        status => Err(DeviceError::Failed {
            device: context.device.clone(),
            reason: format!("cuBLASLt: {what}: {status:?}"),
        }),
    }
}

impl Products {
    /// The library for this device.
    pub fn new(context: &Arc<Context>, tf32: bool) -> Result<Self, DeviceError> {
        context.enter();
        let mut handle = std::ptr::null_mut();
        // SAFETY: the library writes a handle.
        check(context, "start", unsafe { lt::cublasLtCreate(&mut handle) })?;
        // SAFETY: it only answers.
        let version = unsafe { lt::cublasLtGetVersion() };
        Ok(Self { handle, version, tf32, room: Memory::new(context, ROOM)?, plans: Mutex::default() })
    }

    /// The number of the plan for a shape.
    fn plan(&self, context: &Context, shape: Shape) -> Result<usize, DeviceError> {
        let mut plans = super::lock(&self.plans);
        let (known, plans) = &mut *plans;
        if let Some(&plan) = known.get(&shape) {
            return Ok(plan);
        }
        plans.push(self.make(context, shape)?);
        known.insert(shape, plans.len() - 1);
        Ok(plans.len() - 1)
    }

    /// The library's matrices go column by column: what it multiplies are the transposes, in the other order.
    fn make(&self, context: &Context, shape: Shape) -> Result<Plan, DeviceError> {
        use lt::cublasLtMatmulDescAttributes_t as Of;
        use lt::cublasLtMatmulPreferenceAttributes_t as Prefer;
        context.enter();
        let Shape { sizes: [rows, columns, inner], strides, transposed, kinds, aligned, add } = shape;
        let data = |kind: Type| match kind {
            Type::F32 => lt::cudaDataType_t::CUDA_R_32F,
            Type::Bf16 => lt::cudaDataType_t::CUDA_R_16BF,
        };
        let compute = match kinds[0] == Type::F32 && self.tf32 {
            true => lt::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            false => lt::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let (mut operation, mut preference) = (std::ptr::null_mut(), std::ptr::null_mut());
        let mut layouts = [std::ptr::null_mut(); 3];
        let set = |what: &str, status| check(context, what, status);
        // SAFETY: the library writes handles and reads attributes of the sizes that are given.
        unsafe {
            set(
                "describe a product",
                lt::cublasLtMatmulDescCreate(&mut operation, compute, data(Type::F32)),
            )?;
            // Ours is C = A·B; the library's Cᵀ = Bᵀ·Aᵀ, and what is row by row for us it sees transposed already.
            for (attribute, transposed) in [
                (Of::CUBLASLT_MATMUL_DESC_TRANSA, transposed[1]),
                (Of::CUBLASLT_MATMUL_DESC_TRANSB, transposed[0]),
            ] {
                // CUBLAS_OP_T or CUBLAS_OP_N.
                let operation_of = i32::from(transposed);
                let value = std::ptr::from_ref(&operation_of).cast();
                set(
                    "describe a factor",
                    lt::cublasLtMatmulDescSetAttribute(
                        operation,
                        attribute,
                        value,
                        size_of_val(&operation_of),
                    ),
                )?;
            }
            let stored = |rows: usize, columns: usize, transposed: bool| match transposed {
                true => (columns, rows),
                false => (rows, columns),
            };
            let (a, b) = (stored(rows, inner, transposed[0]), stored(inner, columns, transposed[1]));
            for (index, (of, outer_inner)) in [(1, b), (0, a), (2, (rows, columns))].into_iter().enumerate() {
                let (outer, inner) = outer_inner;
                set(
                    "describe a matrix",
                    lt::cublasLtMatrixLayoutCreate(
                        &mut layouts[index],
                        data(kinds[of]),
                        inner as u64,
                        outer as u64,
                        strides[of] as i64,
                    ),
                )?;
            }
            set("prepare", lt::cublasLtMatmulPreferenceCreate(&mut preference))?;
            let room = ROOM;
            let alignments = [
                (Prefer::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, aligned[1]),
                (Prefer::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, aligned[0]),
                (Prefer::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, aligned[2]),
                (Prefer::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, aligned[2]),
            ];
            let limit = Prefer::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
            let prefer = |attribute, value: *const c_void, size| {
                let status = lt::cublasLtMatmulPreferenceSetAttribute(preference, attribute, value, size);
                set("prepare", status)
            };
            prefer(limit, std::ptr::from_ref(&room).cast(), size_of_val(&room))?;
            for (attribute, bytes) in alignments {
                prefer(attribute, std::ptr::from_ref(&bytes).cast(), size_of_val(&bytes))?;
            }
            let mut found: [lt::cublasLtMatmulHeuristicResult_t; PROPOSALS] = std::mem::zeroed();
            let mut count = 0;
            let [first, second, result] = layouts;
            let status = lt::cublasLtMatmulAlgoGetHeuristic(
                self.handle,
                operation,
                first,
                second,
                result,
                result,
                preference,
                PROPOSALS as i32,
                found.as_mut_ptr(),
                &mut count,
            );
            lt::cublasLtMatmulPreferenceDestroy(preference);
            let what = format!("find an algorithm for {rows} × {inner} times {inner} × {columns}");
            set(&what, status)?;
            if count == 0 {
                set(&what, lt::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED)?;
            }
            let algorithm = self.choose(context, shape, &found[..count as usize]);
            Ok(Plan { operation, layouts, algorithm, add })
        }
    }

    /// The first proposal, but where storing the result takes much of the time, the first of the kernels that go on multiplying
    /// meanwhile. On an H200 with cuBLASLt 13.1 those took 0.82 to 0.97 of the first's time in 20 of the networks' 21 such
    /// products, and 1.03 in one; other versions may number their kernels otherwise.
    fn choose(
        &self,
        context: &Context,
        shape: Shape,
        proposals: &[lt::cublasLtMatmulHeuristicResult_t],
    ) -> lt::cublasLtMatmulAlgo_t {
        let Shape { sizes: [rows, columns, inner], transposed, kinds, .. } = shape;
        let stores = inner <= 768 || inner <= 2304 && rows * columns >= 1 << 25;
        let known = context.capability == (9, 0) && self.version / 100 == 1301;
        if !(known && stores && kinds[0] == Type::Bf16 && !transposed[0]) {
            return proposals[0].algo;
        }
        let overlaps = |proposal: &&lt::cublasLtMatmulHeuristicResult_t| {
            let of = |attribute| {
                let mut value = 0u32;
                // SAFETY: both attributes have four bytes.
                unsafe {
                    lt::cublasLtMatmulAlgoConfigGetAttribute(
                        &proposal.algo,
                        attribute,
                        std::ptr::from_mut(&mut value).cast(),
                        size_of_val(&value),
                        std::ptr::null_mut(),
                    );
                }
                value
            };
            use lt::cublasLtMatmulAlgoConfigAttributes_t as Of;
            of(Of::CUBLASLT_ALGO_CONFIG_ID) == 66 && of(Of::CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION) <= 2
        };
        proposals.iter().find(overlaps).unwrap_or(&proposals[0]).algo
    }

    /// Starts a product.
    pub fn execute(
        &self,
        context: &Context,
        stream: sys::CUstream,
        plan: usize,
        [a, b, out]: [u64; 3],
    ) -> Result<(), DeviceError> {
        let plans = super::lock(&self.plans);
        let Plan { operation, layouts: [first, second, result], algorithm, add } = &plans.1[plan];
        let (one, beta) = (1f32, if *add { 1f32 } else { 0f32 });
        // SAFETY: the plan's handles live as long as the library's, and the operands are as large as the plan says.
        let status = unsafe {
            lt::cublasLtMatmul(
                self.handle,
                *operation,
                std::ptr::from_ref(&one).cast(),
                b as *const c_void,
                *first,
                a as *const c_void,
                *second,
                std::ptr::from_ref(&beta).cast(),
                out as *const c_void,
                *result,
                out as *mut c_void,
                *result,
                algorithm,
                self.room.address as *mut c_void,
                ROOM,
                stream.cast(),
            )
        };
        check(context, "multiply", status)
    }
}

impl Drop for Products {
    fn drop(&mut self) {
        // SAFETY: nothing uses them after this.
        unsafe {
            for plan in super::lock(&self.plans).1.drain(..) {
                lt::cublasLtMatmulDescDestroy(plan.operation);
                for layout in plan.layouts {
                    lt::cublasLtMatrixLayoutDestroy(layout);
                }
            }
            lt::cublasLtDestroy(self.handle);
        }
    }
}

/// How many bytes divide an address, at most 16 (the library asks for no more).
fn alignment(address: u64) -> u32 {
    1 << address.trailing_zeros().min(4)
}

impl Cuda {
    /// `out = a·b`, or `out += a·b`.
    pub(super) fn product(&self, out: Matrix, a: Matrix, b: Matrix, write: Write) {
        debug_assert_eq!(
            (out.rows, out.columns, a.inner()),
            (a.outer(), b.outer_of_second(), b.inner_of_second())
        );
        let shape = Shape {
            sizes: [out.rows, out.columns, a.inner()],
            strides: [a.stride, b.stride, out.stride],
            transposed: [a.transposed, b.transposed],
            kinds: [a.kind, b.kind, out.kind],
            aligned: [a.address, b.address, out.address].map(alignment),
            add: write == Write::Add,
        };
        match self.products.plan(&self.context, shape) {
            Ok(plan) => self.submit(Command::Product { plan, operands: [a.address, b.address, out.address] }),
            Err(error) => self.fail(error),
        }
    }
}

impl Matrix {
    fn outer_of_second(&self) -> usize {
        if self.transposed { self.rows } else { self.columns }
    }

    fn inner_of_second(&self) -> usize {
        if self.transposed { self.columns } else { self.rows }
    }
}
