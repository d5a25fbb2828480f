//! A rule as Burn's learning-rate scheduler: in Burn's own training it makes the steps of the stepper, to the last bit.

use std::sync::Arc;

use crate::support::{START, Six, device};
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::lr_scheduler::{LrScheduler, LrSchedulerRecord};
use burn::module::{Module, Param};
use burn::nn::{Linear, LinearConfig, Relu};
use burn::optim::{GradientsParams, SgdConfig};
use burn::tensor::{DType, Device, Tensor, TensorData};
use burn::train::{InferenceStep, Learner, RegressionOutput, SupervisedTraining, TrainOutput, TrainStep};
use untuned::{Refusal, rules::RULES};
use untuned_burn::{Accumulated, Rate, StepError, Stepper};

#[derive(Module, Debug)]
struct Model {
    first: Linear,
    relu: Relu,
    second: Linear,
    #[module(skip)]
    rate: Rate,
}

/// A layer whose weights are always the same: the random numbers of Burn are shared by all tests.
fn linear(inputs: usize, outputs: usize) -> Linear {
    let mut layer = LinearConfig::new(inputs, outputs).init(&device());
    let numbers: Vec<f32> = (0..inputs * outputs).map(|i| (i as f32 * 1.7).sin()).collect();
    let weight = Tensor::<2>::from_data(TensorData::new(numbers, [inputs, outputs]), &device());
    layer.weight = Param::from_tensor(weight.require_grad());
    layer.bias = Some(Param::from_tensor(Tensor::zeros([outputs], &device()).require_grad()));
    layer
}

#[derive(Clone, Debug)]
struct Batch {
    x: Tensor<2>,
    y: Tensor<2>,
}

impl Model {
    fn new(rate: &Rate) -> Model {
        Model { first: linear(2, 8), relu: Relu::new(), second: linear(8, 1), rate: rate.clone() }
    }

    fn forward(&self, batch: Batch) -> RegressionOutput {
        let output = self.second.forward(self.relu.forward(self.first.forward(batch.x)));
        let loss = (output.clone() - batch.y.clone()).square().mean();
        RegressionOutput::new(loss, output, batch.y)
    }

    fn numbers(&self) -> Vec<u32> {
        let mut numbers: Vec<u32> = Vec::new();
        for layer in [&self.first, &self.second] {
            numbers.extend(layer.weight.val().into_data().iter::<f32>().map(f32::to_bits));
            numbers.extend(layer.bias.as_ref().unwrap().val().into_data().iter::<f32>().map(f32::to_bits));
        }
        numbers
    }
}

impl TrainStep for Model {
    type Input = Batch;
    type Output = RegressionOutput;

    fn step(&self, batch: Batch) -> TrainOutput<RegressionOutput> {
        let item = self.forward(batch);
        let mut output = TrainOutput::new(self, item.loss.backward(), item);
        self.rate.observe(self, &output.item.loss, &mut output.grads);
        output
    }
}

impl InferenceStep for Model {
    type Input = Batch;
    type Output = RegressionOutput;

    fn step(&self, batch: Batch) -> RegressionOutput {
        self.forward(batch)
    }
}

#[derive(Clone)]
struct Stack;

impl Batcher<[f32; 3], Batch> for Stack {
    fn batch(&self, items: Vec<[f32; 3]>, device: &Device) -> Batch {
        let x: Vec<f32> = items.iter().flat_map(|item| [item[0], item[1]]).collect();
        let y: Vec<f32> = items.iter().map(|item| item[2]).collect();
        let count = items.len();
        Batch {
            x: Tensor::from_data(TensorData::new(x, [count, 2]), device),
            y: Tensor::from_data(TensorData::new(y, [count, 1]), device),
        }
    }
}

/// `y = sin(a) + b²`, 24 items in a fixed order.
fn items() -> Vec<[f32; 3]> {
    let item = |i: i32| {
        let (a, b) = (i as f32 * 0.25 - 3.0, (i % 5) as f32 * 0.5 - 1.0);
        [a, b, a.sin() + b * b]
    };
    (0..24).map(item).collect()
}

const BATCH: usize = 6;
const EPOCHS: usize = 3;

fn loader() -> Arc<dyn DataLoader<Batch>> {
    DataLoaderBuilder::new(Stack).batch_size(BATCH).set_device(device()).build(InMemDataset::new(items()))
}

/// Burn's own training, with plain SGD and the rule as its scheduler.
fn trained(rate: &Rate, accumulate: Option<usize>) -> Model {
    let folder = tempfile::tempdir().unwrap();
    let mut training = SupervisedTraining::new(folder.path(), loader(), loader()).num_epochs(EPOCHS);
    if let Some(batches) = accumulate {
        training = training.grads_accumulation(batches);
    }
    let learner = Learner::new(Model::new(rate), SgdConfig::new().init(), rate.clone());
    training.launch(learner).model
}

/// The same batches with the stepper.
fn stepped(spec: &str, steps: u64, accumulate: usize) -> (Model, f64) {
    let mut model = Model::new(&Rate::new("dog", 1).unwrap());
    let mut stepper = Stepper::new(spec, steps).unwrap();
    let items = items();
    let mut rate = 0.0;
    for _ in 0..EPOCHS {
        let mut batches = Accumulated::new();
        for batch in items.chunks(BATCH) {
            let item = model.forward(Stack.batch(batch.to_vec(), &device()));
            let gradients = GradientsParams::from_grads(item.loss.backward(), &model);
            if accumulate == 1 {
                rate = stepper.step(item.loss, &mut model, gradients).unwrap().rate;
                continue;
            }
            batches.add(item.loss, &model, gradients).unwrap();
            if batches.count() == accumulate {
                rate = stepper.step_mean(std::mem::take(&mut batches), &mut model).unwrap().rate;
            }
        }
    }
    (model, rate)
}

#[test]
fn burns_own_training_makes_the_steps_of_the_stepper() {
    for spec in ["inexact-polyak", "level-polyak", "dog", "decsps:grad_shift=0.001"] {
        let steps = (EPOCHS * items().len() / BATCH) as u64;
        let rate = Rate::new(spec, steps).unwrap();
        let before = Model::new(&rate).numbers();
        let model = trained(&rate, None);
        assert_eq!(rate.error(), None, "{spec}");
        let (same, last) = stepped(spec, steps, 1);
        assert_eq!(model.numbers(), same.numbers(), "{spec}");
        assert_eq!(rate.last().map(|report| (report.step, report.rate)), Some((steps - 1, last)), "{spec}");
        assert_ne!(model.numbers(), before, "{spec}");
    }
}

/// Burn adds the gradients of batches up; the rule sees means, and the rate is that of the sum.
#[test]
fn accumulation_in_burns_own_training() {
    let rate = Rate::new("inexact-polyak", 6).unwrap();
    let model = trained(&rate, Some(2));
    let (same, last) = stepped("inexact-polyak", 6, 2);
    let report = rate.last().unwrap();
    assert_eq!(report.step, 5);
    assert!((report.rate / last - 1.0).abs() < 1e-5, "{} and {last}", report.rate);
    for (a, b) in model.numbers().into_iter().zip(same.numbers()) {
        let (a, b) = (f32::from_bits(a), f32::from_bits(b));
        assert!((a - b).abs() < 1e-5 * b.abs().max(0.1), "{a} and {b}");
    }
}

/// In the order of Burn's training: the batch, the scheduler, the optimizer.
fn by_hand(rate: &mut Rate, module: &mut Six, t: u64, factor: f32) -> f64 {
    let loss = module.loss(t, 0.0, 0);
    let mut gradients = module.gradients(&loss);
    rate.observe(module, &(loss * factor), &mut gradients);
    let lr = rate.step();
    *module = SgdConfig::new().init().step(lr, module.clone(), gradients);
    lr
}

#[test]
fn every_rule_that_does_not_jump_back() {
    for entry in RULES {
        let spec = match entry.name {
            "gd" => "gd:lr=0.05",
            "clipped-gd" => "clipped-gd:lr=0.05,threshold=2",
            "polyak" => "polyak:f_star=3",
            name => name,
        };
        let mut rate = match Rate::new(spec, 20) {
            Err(StepError::Jumps { .. }) if spec == "adaptive-polyak" => continue,
            rate => rate.unwrap(),
        };
        let (mut one, mut other) = (Six::new(&START, 4, DType::F32), Six::new(&START, 4, DType::F32));
        let mut stepper = Stepper::new(spec, 20).unwrap();
        for t in 0..8 {
            let lr = by_hand(&mut rate, &mut one, t, 1.0);
            let loss = other.loss(t, 0.0, 0);
            let gradients = other.gradients(&loss);
            let report = stepper.step(loss, &mut other, gradients).unwrap();
            assert_eq!((lr, rate.last()), (report.rate, Some(report)), "{spec} at {t}");
            assert_eq!(one.bits(), other.bits(), "{spec} at {t}");
        }
        assert_eq!(rate.memory(), stepper.memory(), "{spec}");
    }
    assert!(matches!(Rate::new("adamw", 9), Err(StepError::Spec(_))), "no scalar rule");
}

#[test]
fn a_refused_step_leaves_the_module() {
    let mut rate = Rate::new("inexact-polyak", 20).unwrap();
    let mut module = Six::new(&START, 4, DType::F32);
    by_hand(&mut rate, &mut module, 0, 1.0);
    let before = module.bits();
    assert_eq!(by_hand(&mut rate, &mut module, 1, f32::NAN), 0.0);
    assert!(matches!(rate.error(), Some(StepError::Refused(Refusal::Loss { step: 1, .. }))));

    // A gradient that is not finite would reach the parameters even with a rate of 0.
    let loss = module.loss(1, 0.0, 0);
    let mut gradients = module.gradients(&loss);
    let id = module.list.as_ref().unwrap().id;
    let broken = gradients.remove::<1>(id).unwrap() * f32::INFINITY;
    gradients.register(id, broken);
    rate.observe(&module, &loss, &mut gradients);
    let lr = rate.step();
    assert_eq!((lr, gradients.len()), (0.0, 0));
    assert!(matches!(rate.error(), Some(StepError::Refused(Refusal::Gradient { .. }))));
    module = SgdConfig::new().init().step(lr, module, gradients);
    assert_eq!(module.bits(), before);
    assert!(by_hand(&mut rate, &mut module, 1, 1.0) > 0.0);
    assert_eq!((rate.error(), rate.last().unwrap().step), (None, 1));
}

/// A loss of 1 with this gradient.
fn show(rate: &Rate, module: &Six, gradient: f64) -> usize {
    let loss = module.all().sum() * 0.0 + 1.0;
    let mut gradients = module.gradients(&loss);
    let id = module.list.as_ref().unwrap().id;
    gradients.remove::<1>(id).unwrap();
    gradients.register(id, Tensor::<1>::full([6], gradient, &device().inner()));
    rate.observe(module, &Tensor::<1>::full([1], 1.0, &device()), &mut gradients);
    gradients.len()
}

/// The step of the first batch alone would be too long for f32; that of the mean is not.
#[test]
fn only_the_mean_of_the_batches_counts() {
    let mut rate = Rate::new("polyak-bound", 20).unwrap();
    let module = Six::new(&START, 0, DType::F32);
    assert_eq!(show(&rate, &module, 4e-21), 1, "the gradients stay");
    assert_eq!(show(&rate, &module, 1.0), 1);
    let lr = rate.step();
    assert_eq!((rate.error(), rate.last().unwrap().step), (None, 0));
    assert!((lr * 2.0 - 1.0 / 1.5).abs() < 1e-6, "{lr}");
    // What is not finite stays so.
    assert_eq!([show(&rate, &module, f64::NAN), show(&rate, &module, 1.0)], [0, 0]);
    assert_eq!(rate.step(), 0.0);
    assert!(matches!(rate.error(), Some(StepError::Refused(Refusal::Gradient { step: 1, .. }))));
}

/// The loss and the gradient are finite here, and the parameters are not: neither is `‖x_0‖`, or the distance from it.
#[test]
fn parameters_that_are_not_finite_take_the_gradients_away() {
    let (module, mut numbers) = (Six::new(&START, 0, DType::F32), START);
    numbers[2] = f64::INFINITY;
    let broken = Six::new(&numbers, 0, DType::F32);
    for (first, shown) in [(&broken, [0, 0]), (&module, [1, 0])] {
        let mut rate = Rate::new("dog", 20).unwrap();
        assert_eq!([show(&rate, first, 1.0), show(&rate, &broken, 1.0)], shown);
        assert_eq!(rate.step(), 0.0);
        assert!(matches!(rate.error(), Some(StepError::Refused(Refusal::NotFinite { .. }))), "{rate:?}");
    }
}

/// A refused first step leaves no start behind.
#[test]
fn the_start_is_that_of_the_first_step_made() {
    let (mut rate, mut fresh) = (Rate::new("dog", 20).unwrap(), Rate::new("dog", 20).unwrap());
    let (broken, module) = (Six::new(&[9.0; 6], 0, DType::F32), Six::new(&START, 0, DType::F32));
    show(&rate, &broken, 1.0);
    show(&rate, &broken, f64::NAN);
    assert_eq!(rate.step(), 0.0);
    for rate in [&rate, &fresh] {
        show(rate, &module, 1.0);
    }
    assert_eq!(rate.step(), fresh.step());
}

#[test]
#[should_panic(expected = "call `Rate::observe`")]
fn a_scheduler_that_saw_nothing_says_so() {
    Rate::new("inexact-polyak", 20).unwrap().step();
}

#[test]
fn what_is_saved_goes_on_bit_for_bit() {
    for spec in ["adasps", "inexact-polyak", "dog"] {
        let start = Six::new(&START, 4, DType::F32);
        let (mut rate, mut module) = (Rate::new(spec, 20).unwrap(), start.clone());
        for t in 0..4 {
            by_hand(&mut rate, &mut module, t, 1.0);
        }
        let bytes = rate.to_record().into_bytes().unwrap();
        let mut other = Rate::new(spec, 20).unwrap();
        other.load_record(LrSchedulerRecord::from_bytes(bytes).unwrap());
        let mut copy = module.clone();
        if spec == "dog" {
            assert_eq!(by_hand(&mut other, &mut copy, 4, 1.0), 0.0);
            assert!(matches!(other.error(), Some(StepError::NoStart { .. })), "{:?}", other.error());
            // The beginning may be made again; its ids are others then.
            other.start_from(&Six::new(&START, 4, DType::F32)).unwrap();
        }
        for t in 4..10 {
            let rates = (by_hand(&mut rate, &mut module, t, 1.0), by_hand(&mut other, &mut copy, t, 1.0));
            assert_eq!(rates.0, rates.1, "{spec} at {t}");
            assert_eq!(module.bits(), copy.bits(), "{spec} at {t}");
        }
    }
}

#[test]
#[should_panic(
    expected = "it is the state of `gd:lr=0.1` for 20 steps, and this is `gd:lr=0.01` for 20 steps"
)]
fn a_record_of_other_parameters_is_refused() {
    let record = Rate::new("gd:lr=0.1", 20).unwrap().to_record();
    Rate::new("gd:lr=0.01", 20).unwrap().load_record(record);
}

#[test]
#[should_panic(expected = "it is the state of `dog` for 20 steps, and this is `dog` for 30 steps")]
fn a_record_of_another_number_of_steps_is_refused() {
    let record = Rate::new("dog", 20).unwrap().to_record();
    Rate::new("dog", 30).unwrap().load_record(record);
}

/// 1/‖g‖² is 1e40.
#[test]
fn a_rate_that_f32_cannot_hold_is_refused() {
    let mut rate = Rate::new("polyak-bound", 20).unwrap();
    let module = Six::new(&START, 0, DType::F32);
    show(&rate, &module, 4e-21);
    assert_eq!((rate.step(), rate.last()), (0.0, None));
    assert!(matches!(rate.error(), Some(StepError::Refused(_))), "{:?}", rate.error());
}
