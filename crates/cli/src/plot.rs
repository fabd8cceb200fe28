//! Throughput functions as a picture: request size against rate, both logarithmic.

use crate::failure::Failure;
use crate::topo::names;
use cluster::chrome::short_link_name;
use model::{Throughput, Topology};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;

const SIZE: (u32, u32) = (1000, 620);
const REQUESTS: std::ops::Range<f64> = 64.0..268_435_456.0;

/// One curve with its name in the legend.
struct Curve {
    label: String,
    points: Vec<(f64, f64)>,
}

/// Writes the curves of `topology` to `path` as SVG.
pub(crate) fn write(path: &Path, topology: &Topology) -> Result<(), Failure> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    draw(&root, &topology.name, &curves(topology))
        .map_err(|e| Failure::failed(format_args!("{}: {e}", path.display())))
}

fn curves(topology: &Topology) -> Vec<Curve> {
    let mut curves = Vec::new();
    for class in &topology.classes {
        for channel in &class.channels {
            let (from, to) = (names(class, &channel.from), names(class, &channel.to));
            let label = format!("{}: {} {from} → {to}", class.name, channel.kind.name());
            curves.push(Curve { label, points: points(&channel.curves.run) });
        }
    }
    let links = topology.links.iter();
    let of_link = |link: &model::Link| Curve {
        label: format!("link: {}", short_link_name(topology, link)),
        points: points(&link.curves.run),
    };
    curves.extend(links.map(of_link));
    curves
}

/// Four points to each power of two, which is smooth enough at this size.
fn points(function: &Throughput) -> Vec<(f64, f64)> {
    let steps = (4.0 * (REQUESTS.end / REQUESTS.start).log2()) as i32;
    let request = |step: i32| REQUESTS.start * 2f64.powf(f64::from(step) / 4.0);
    (0..=steps).map(|s| (request(s), function.at(request(s) as u64))).collect()
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(root: &DrawingArea<SVGBackend<'_>, Shift>, title: &str, curves: &[Curve]) -> Drawn {
    root.fill(&WHITE)?;
    let rates = || curves.iter().flat_map(|c| c.points.iter().map(|p| p.1));
    let (least, most) = (rates().fold(1e9, f64::min), rates().fold(1e9, f64::max));
    let mut chart = ChartBuilder::on(root)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(45)
        .y_label_area_size(80)
        .build_cartesian_2d(
            REQUESTS.log_scale().base(4.0),
            (least * 0.8..most * 1.3).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("request")
        .y_desc("throughput")
        .x_label_formatter(&|bytes| crate::topo::size(*bytes as u64))
        .y_label_formatter(&|rate| crate::topo::rate(*rate))
        .draw()?;
    for (i, curve) in curves.iter().enumerate() {
        let color = Palette99::pick(i).mix(1.0);
        let line = LineSeries::new(curve.points.iter().copied(), color.stroke_width(2));
        let legend = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2));
        chart.draw_series(line)?.label(&*curve.label).legend(legend);
    }
    let labels = chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .position(SeriesLabelPosition::LowerRight)
        .draw();
    labels?;
    Ok(root.present()?)
}
