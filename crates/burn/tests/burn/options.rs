//! The options of a stepper: clipping by the global norm, the best weights, weight decay, a factor of the rate.

use crate::support::{START, Six, device, specs, step};
use burn::tensor::{DType, Tensor};
use untuned::{Average, Optimizer as _};
use untuned_burn::{StepError, Stepper};

/// One norm for the whole gradient: every tensor is scaled alike, as `torch.nn.utils.clip_grad_norm_` does.
#[test]
fn clipping_is_by_the_global_norm() {
    for loops in [true, false] {
        let stepper = || Stepper::new("sgd-momentum:lr=1,momentum=0", 9).unwrap().loops(loops);
        let (mut free, mut clipped) = (Six::new(&START, 4, DType::F64), Six::new(&START, 4, DType::F64));
        let report = step(&mut stepper(), &mut free, 0);
        let same = step(&mut stepper().clip(2.0).unwrap(), &mut clipped, 0);
        assert_eq!(report.grad_norm, same.grad_norm, "the report has the norm before the clipping");
        let scale = 2.0 / (report.grad_norm + 1e-6);
        for ((start, free), clipped) in START.iter().zip(free.numbers()).zip(clipped.numbers()) {
            assert!(((clipped - start) - scale * (free - start)).abs() < 1e-12);
        }
    }
}

#[test]
fn methods_that_take_the_gradient_as_it_is_refuse_to_clip() {
    for spec in specs() {
        let stepper = Stepper::new(&spec, 9).unwrap();
        let clips = stepper.method().clips();
        match stepper.clip(1.0) {
            Ok(_) => assert!(clips, "{spec}"),
            Err(StepError::Clip { method }) => {
                assert!(!clips && spec.starts_with(&method), "{spec}: {method}");
            }
            Err(other) => panic!("{spec}: {other}"),
        }
    }
    assert!(matches!(Stepper::new("adamw", 9).unwrap().clip(0.0), Err(StepError::Option { .. })));
    assert!(matches!(Stepper::new("adamw", 9).unwrap().clip(f64::NAN), Err(StepError::Option { .. })));
    assert!(matches!(Stepper::new("adamw", 9).unwrap().weight_decay(-1.0), Err(StepError::Option { .. })));
    assert!(matches!(
        Stepper::new("adamw", 9).unwrap().set_rate(f64::INFINITY),
        Err(StepError::Option { .. })
    ));
}

/// The best point is the one that the lowest loss was measured at, not the one after it.
#[test]
fn the_best_weights_are_kept() {
    for loops in [true, false] {
        let mut stepper = Stepper::new("gd:lr=0.3", 30).unwrap().loops(loops).keep_best();
        let mut module = Six::new(&START, 4, DType::F32);
        assert!(stepper.best(&module).unwrap().is_none());
        let (mut lowest, mut at) = (f64::INFINITY, Vec::new());
        for t in 0..8 {
            let before = module.bits();
            let report = step(&mut stepper, &mut module, t);
            assert_eq!(report.best, report.loss <= lowest);
            if report.best {
                (lowest, at) = (report.loss, before);
            }
        }
        let (loss, best) = stepper.best(&module).unwrap().unwrap();
        assert_eq!((loss, best.bits()), (lowest, at));
        assert_ne!(best.bits(), module.bits());
        assert!(best.matrix.as_ref().unwrap().is_require_grad());
        assert_eq!(stepper.memory(), 6 * 4);
    }
}

/// As in `minimize`.
#[test]
fn a_tie_goes_to_the_later_point() {
    let mut stepper = Stepper::new("gd:lr=0.3", 9).unwrap().keep_best();
    let mut module = Six::new(&START, 4, DType::F32);
    let mut at = Vec::new();
    for (t, (loss, is_best)) in [(2.0, true), (1.0, true), (1.0, true), (3.0, false)].into_iter().enumerate()
    {
        let before = module.bits();
        let gradients = module.gradients(&module.loss(t as u64, 0.0, 0));
        let loss = Tensor::<1>::full([1], loss, &device());
        assert_eq!(stepper.step(loss, &mut module, gradients).unwrap().best, is_best, "step {t}");
        if is_best {
            assert_ne!(before, at, "step {t}");
            at = before;
        }
    }
    let (loss, best) = stepper.best(&module).unwrap().unwrap();
    assert_eq!((loss, best.bits()), (1.0, at));
}

#[test]
fn an_average_that_cannot_be_used_is_refused() {
    let averaged = |average| Stepper::new("gd:lr=0.3", 9).unwrap().average(average);
    assert!(averaged(Average::Exponential(0.5)).is_ok());
    let error = averaged(Average::Polynomial(-5.0)).unwrap_err();
    assert!(
        matches!(error, StepError::Spec(_)) && error.to_string().contains("γ=-5 does not work"),
        "{error}"
    );
}

/// A scalar rule decays all parameters, an optimizer the matrices.
#[test]
fn what_decays() {
    for (spec, list_decays) in [("gd:lr=0.1", true), ("sgd-momentum:lr=0.1,momentum=0", false)] {
        let [free, decayed] = [0.0, 0.5].map(|decay| {
            let mut module = Six::new(&START, 4, DType::F64);
            step(&mut Stepper::new(spec, 9).unwrap().weight_decay(decay).unwrap(), &mut module, 0);
            module.numbers()
        });
        for (i, (free, decayed)) in free.into_iter().zip(decayed).enumerate() {
            let expected = if i < 4 || list_decays { START[i] * 0.05 } else { 0.0 };
            assert!((free - decayed - expected).abs() < 1e-12, "{spec}: {i}");
        }
    }
}

#[test]
fn a_factor_multiplies_the_rate() {
    let mut stepper = Stepper::new("gd:lr=0.5", 9).unwrap();
    let mut module = Six::new(&START, 4, DType::F32);
    stepper.set_rate(0.25).unwrap();
    assert_eq!(step(&mut stepper, &mut module, 0).rate, 0.125);
    stepper.set_rate(1.0).unwrap();
    assert_eq!(step(&mut stepper, &mut module, 1).rate, 0.5);
}

/// Schedule-Free trains one point and evaluates another.
#[test]
fn the_evaluated_point_may_be_another() {
    for loops in [true, false] {
        for (spec, another) in [("schedule-free-adamw:lr=0.1", true), ("adamw:lr=0.1", false)] {
            let mut stepper = Stepper::new(spec, 9).unwrap().loops(loops);
            let mut module = Six::new(&START, 4, DType::F32);
            assert_eq!(stepper.evaluated(&module).unwrap().bits(), module.bits());
            for t in 0..4 {
                step(&mut stepper, &mut module, t);
            }
            let before = module.bits();
            assert_eq!(stepper.evaluated(&module).unwrap().bits() != before, another, "{spec}");
            assert_eq!(module.bits(), before, "training goes on from its own point");
            assert!(stepper.evaluated(&Six::new(&START, 4, DType::F32)).is_err(), "another module");
        }
    }
}
