"""A radio observation from measurement sets to a catalogue: ``python examples/radio/pipeline.py``.

Eight bands are observed four times each. Gains, noise and interference are simulated, and the disk of one band fails.
DP3 flags and calibrates, WSClean images each band, and PyBDSF finds the sources in the mean of the bands that are left.
The script writes ``radio.graph``, which EAGLE opens, and runs it. ``docs/tutorial/radio.md`` explains each step.

The source of each function is copied into the graph by itself, so it imports what it uses.
"""
# ruff: noqa: PLC0415 - a function in a graph is a module of its own

import sys
from pathlib import Path

from dropflow import Graph, app

HERE = Path(__file__).parent
BANDS, TIMES = 8, 4

STRATEGY = """\
-- How interference is found: samples that are brighter than their surroundings in time and frequency, by polarisation.
function execute(input)
  for _, polarization in ipairs(input:get_polarizations()) do
    local samples = input:convert_to_polarization(polarization)
    local brightness = samples:convert_to_complex("amplitude")
    aoflagger.sumthreshold(brightness, 1, 1, true, true)
    aoflagger.scale_invariant_rank_operator(brightness, 0.2, 0.2)
    samples:set_mask(brightness)
    input:set_polarization_data(polarization, samples)
  end
end
"""
FLAG = "DP3.py msin={raw} msout={flagged} steps=[flag] flag.type=aoflagger flag.strategy={strategy} numthreads=1"
SOLVE = (
    "DP3.py msin={flagged} msout= steps=[solve] solve.type=gaincal solve.caltype=diagonal solve.solint=20"
    " solve.sourcedb={model} solve.parmdb={gains} numthreads=1"
)
APPLY = (
    "DP3.py msin={flagged} msout={calibrated} steps=[amplitude,phase] numthreads=1"
    " amplitude.type=applycal amplitude.parmdb={gains} amplitude.correction=amplitude000"
    " phase.type=applycal phase.parmdb={gains} phase.correction=phase000"
)
IMAGE = (
    'work=$(mktemp -d) && wsclean -j 1 -no-update-model-required -temp-dir "$work" -name "$work/band"'
    " -pol I -size 256 256 -scale 8asec -weight briggs 0 -beam-size 50asec -niter 5000 -mgain 0.8 -threshold 0.02"
    ' {calibrated} && mv "$work/band-image.fits" {image}; status=$?; rm -rf "$work"; exit $status'
)


@app
def make_sky() -> list[list[object]]:
    """Return three point sources: name, right ascension and declination in degrees, and flux in Jy."""
    return [["north", 180.00, -44.92, 10.0], ["east", 180.12, -44.95, 5.0], ["south", 179.86, -45.09, 3.0]]


@app
def plan_observations(sky: list[list[object]], bands: int, times: int, broken: int) -> list[list[dict[str, object]]]:
    """Return what to observe, by band and time. One band is broken; none if it has no such number."""
    return [
        [{"band": band, "time": time, "is_broken": band == broken, "sky": sky} for time in range(times)]
        for band in range(bands)
    ]


@app(outputs=("model", "strategy"))
def write_settings(part: dict[str, object], model: str, strategy: str) -> None:
    """Write the sky model of DP3, and the strategy of AOFlagger."""
    from pathlib import Path

    lines = ["FORMAT = Name, Type, Ra, Dec, I, ReferenceFrequency='1e9', SpectralIndex='[]'"]
    lines += [f"{name}, POINT, {ra}deg, {dec}deg, {flux}, 1e9, []" for name, ra, dec, flux in part["sky"]]
    Path(model).write_text("\n".join(lines) + "\n", encoding="utf-8")
    Path(strategy).write_text(STRATEGY, encoding="utf-8")


@app(outputs=("raw",))
def observe(part: dict[str, object], noise: float, raw: str) -> None:
    """Write a measurement set as 16 antennas in a Y would record it: 20 minutes in 16 channels of 1 MHz.

    Each antenna and polarisation has a gain of its own. A transmitter fills one channel, and a burst one minute. The
    measurement set of a broken band is cut off, as by a disk that became full.
    """
    import os

    import numpy as np

    rng = np.random.default_rng([part["band"], part["time"]])
    longitude, latitude, radius = np.deg2rad(116.64), np.deg2rad(-26.70), 6374e3  # of the array, and of the Earth in m
    ra0, dec0 = np.deg2rad(180.0), np.deg2rad(-45.0)
    channels = 1.0e9 + 16e6 * part["band"] + 1e6 * (np.arange(16) - 7.5)
    seconds = 5183970379.0 + 3600 * part["time"] + 60.0 * np.arange(20)  # since the epoch of MJD; 2 h before transit

    # Places of the antennas, and their baselines in wavelengths toward the phase centre.
    arms, along = np.deg2rad([10, 130, 250]), np.array([60, 140, 250, 400, 600])
    east = np.concatenate([[0.0], *(along * (1 + 0.13 * n) * np.sin(arm) for n, arm in enumerate(arms))])
    north = np.concatenate([[0.0], *(along * (1 + 0.13 * n) * np.cos(arm) for n, arm in enumerate(arms))])
    up = np.array([np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)])
    eastward = np.array([-np.sin(longitude), np.cos(longitude), 0])
    places = radius * up + np.outer(east, eastward) + np.outer(north, np.cross(up, eastward))
    first, second = np.triu_indices(len(places), 1)
    angle = np.deg2rad((280.46061837 + 360.98564736629 * (seconds / 86400 - 51544.5)) % 360) - ra0
    sin, cos, zero = np.sin(angle), np.cos(angle), np.zeros(len(angle))
    turn = np.array(
        [
            [sin, cos, zero],
            [-np.sin(dec0) * cos, np.sin(dec0) * sin, zero + np.cos(dec0)],
            [np.cos(dec0) * cos, -np.cos(dec0) * sin, zero + np.sin(dec0)],
        ]
    )
    uvw = np.einsum("ijt,bj->tbi", turn, places[second] - places[first])  # (times, baselines, 3), in metres

    # What the sky gives, then gains, noise and interference: (times, baselines, channels, polarisations).
    true = np.zeros((*uvw.shape[:2], len(channels)), complex)
    for _, ra, dec, flux in part["sky"]:
        da, at = np.deg2rad(ra) - ra0, np.deg2rad(dec)
        x, y = np.cos(at) * np.sin(da), np.sin(at) * np.cos(dec0) - np.cos(at) * np.sin(dec0) * np.cos(da)
        path = uvw @ [x, y, np.sqrt(1 - x * x - y * y) - 1]
        true += flux * np.exp(2j * np.pi * path[..., None] * channels / 299792458.0)
    shape = (*true.shape, 4)
    data = noise / np.sqrt(2) * (rng.normal(size=shape) + 1j * rng.normal(size=shape))
    for polarisation in (0, 3):  # XX and YY; the sources are not polarised
        gain = rng.uniform(0.7, 1.3, len(places)) * np.exp(1j * rng.uniform(-1, 1, len(places)))
        data[..., polarisation] += true * (gain[first] * gain[second].conj())[:, None]
    data[:, :, 5] += 300 * np.exp(2j * np.pi * rng.random((*shape[:2], 1)))
    data[rng.integers(20)] += 200

    pairs = (first, second)
    write_measurement_set(raw, data, uvw=uvw, places=places, pairs=pairs, seconds=seconds, channels=channels)
    if part["is_broken"]:
        os.truncate(f"{raw}/table.f0", 1000)


def write_measurement_set(
    raw: str, data: object, *, uvw: object, places: object, pairs: tuple, seconds: object, channels: object
) -> None:
    """Write a measurement set of four polarisations, whose phase centre is at 180°, -45°.

    The shapes: `data` (times, baselines, channels, 4), `uvw` (times, baselines, 3), `places` (antennas, 3), and `pairs`
    has the first and the second antenna of each baseline.
    """
    import numpy as np
    from casacore import tables

    rows, antennas, per_channel = data.shape[0] * data.shape[1], len(places), list(data.shape[2:])
    columns = [
        tables.makearrcoldesc("DATA", 0j, ndim=2, shape=per_channel, valuetype="complex"),
        tables.makearrcoldesc("WEIGHT_SPECTRUM", 0.0, ndim=2, shape=per_channel, valuetype="float"),
    ]
    with tables.default_ms(raw, tables.maketabdesc(columns)) as main:
        main.addrows(rows)
        main.putcol("DATA", data.reshape(rows, *per_channel).astype(np.complex64))
        main.putcol("WEIGHT_SPECTRUM", np.ones((rows, *per_channel), np.float32))
        main.putcol("FLAG", np.zeros((rows, *per_channel), bool))
        main.putcol("UVW", uvw.reshape(rows, 3))
        main.putcol("ANTENNA1", np.tile(pairs[0], len(seconds)))
        main.putcol("ANTENNA2", np.tile(pairs[1], len(seconds)))
        for name in ("TIME", "TIME_CENTROID"):
            main.putcol(name, np.repeat(seconds, len(pairs[0])))
        for name in ("INTERVAL", "EXPOSURE"):
            main.putcol(name, np.full(rows, 60.0))
        for name in ("WEIGHT", "SIGMA"):
            main.putcol(name, np.ones((rows, 4), np.float32))
    direction, wide = np.deg2rad([[[180.0, -45.0]]]), np.full((1, len(channels)), 1e6)
    names = [f"A{number:02}" for number in range(antennas)]
    parts = {
        "ANTENNA": {
            "POSITION": places,
            "OFFSET": np.zeros((antennas, 3)),
            "NAME": names,
            "STATION": names,
            "MOUNT": ["ALT-AZ"] * antennas,
            "TYPE": ["GROUND-BASED"] * antennas,
            "DISH_DIAMETER": np.full(antennas, 12.0),
        },
        "FEED": {
            "ANTENNA_ID": np.arange(antennas),
            "SPECTRAL_WINDOW_ID": np.full(antennas, -1),
            "NUM_RECEPTORS": np.full(antennas, 2),
            "TIME": np.full(antennas, seconds[0]),
            "INTERVAL": np.full(antennas, 1e9),
            "BEAM_OFFSET": np.zeros((antennas, 2, 2)),
            "POLARIZATION_TYPE": np.array([["X", "Y"]] * antennas),
            "POL_RESPONSE": np.tile(np.eye(2, dtype=complex), (antennas, 1, 1)),
            "POSITION": np.zeros((antennas, 3)),
            "RECEPTOR_ANGLE": np.zeros((antennas, 2)),
        },
        "SPECTRAL_WINDOW": {
            "NAME": [f"{channels.mean() / 1e6:g} MHz"],
            "NUM_CHAN": [len(channels)],
            "CHAN_FREQ": channels[None],
            "CHAN_WIDTH": wide,
            "EFFECTIVE_BW": wide,
            "RESOLUTION": wide,
            "REF_FREQUENCY": [channels.mean()],
            "TOTAL_BANDWIDTH": [wide.sum()],
            "MEAS_FREQ_REF": [5],  # topocentric
        },
        "POLARIZATION": {
            "NUM_CORR": [4],
            "CORR_TYPE": np.array([[9, 10, 11, 12]]),  # XX, XY, YX, YY
            "CORR_PRODUCT": np.array([[[0, 0], [0, 1], [1, 0], [1, 1]]]),
        },
        "DATA_DESCRIPTION": {"SPECTRAL_WINDOW_ID": [0], "POLARIZATION_ID": [0]},
        "FIELD": {
            "NAME": ["three sources"],
            "TIME": [seconds[0]],
            "SOURCE_ID": [-1],
            **dict.fromkeys(("PHASE_DIR", "DELAY_DIR", "REFERENCE_DIR"), direction),
        },
        "OBSERVATION": {"TELESCOPE_NAME": ["simulated"], "TIME_RANGE": np.array([[seconds[0], seconds[-1]]])},
    }
    for name, values in parts.items():
        with tables.table(f"{raw}/{name}", readonly=False, ack=False) as table:
            table.addrows(len(next(iter(values.values()))))
            for column, cells in values.items():
                table.putcol(column, cells)


@app(outputs=("cube",), input_error_threshold=13)
def make_cube(images: list[str], bands: int, cube: str) -> None:
    """Write the images of all bands as planes of a cube. Planes of missing bands are blank.

    Up to 13 % of the images may be missing: one of eight. The header has the fraction in the card MISSING.
    """
    import numpy as np
    from astropy.io import fits

    import dropflow

    planes, first = {}, None
    for path in images:
        with fits.open(path) as opened:
            header = opened[0].header
            planes[round((header["CRVAL3"] - 1.0e9) / 16e6)] = np.array(opened[0].data[0, 0], np.float32)
            first = first or header
    header, blank = first.copy(), np.full_like(next(iter(planes.values())), np.nan)
    for card in ("NAXIS4", "CTYPE4", "CRPIX4", "CRVAL4", "CDELT4", "CUNIT4"):
        header.remove(card, ignore_missing=True)
    header["CRPIX3"], header["CRVAL3"], header["CDELT3"] = 1.0, 1.0e9, 16e6
    missing = [band for band in range(bands) if band not in planes]
    header["NBANDS"] = (bands, "bands that were observed")
    for band in missing:
        header.add_history(f"band {band} at {1000 + 16 * band} MHz is missing")
    fits.writeto(cube, np.stack([planes.get(band, blank) for band in range(bands)]), header)
    dropflow.write_missing(cube)


@app(outputs=("mean",))
def average(cube: str, mean: str) -> None:
    """Write the mean of the bands that are there, with the header of the cube."""
    import numpy as np
    from astropy.io import fits

    with fits.open(cube) as opened:
        fits.writeto(mean, np.nanmean(opened[0].data, axis=0, keepdims=True), opened[0].header)


@app
def find_sources(mean: str) -> list[list[float]]:
    """Return right ascension and declination in degrees, and flux in Jy, of the sources that PyBDSF finds."""
    import tempfile

    import bdsf

    with tempfile.TemporaryDirectory() as folder:  # for its log
        image = bdsf.process_image(
            mean,
            outdir=folder,
            quiet=True,
            ncores=1,
            thresh_pix=10,
            thresh_isl=5,
            rms_map=False,
            mean_map="zero",
        )
    found = [[*map(float, source.posn_sky_centroid), float(source.total_flux)] for source in image.sources]
    return sorted(found, key=lambda source: -source[2])


@app
def write_catalogue(found: list[list[float]]) -> str:
    """Return a table with a row for each source."""
    return "ra,dec,flux\n" + "".join(f"{ra:.6f},{dec:.6f},{flux:.4f}\n" for ra, dec, flux in found)


@app
def compare(found: list[list[float]], sky: list[list[object]], mean: str) -> str:
    """Return the differences between the sources that were found and the sky model, as text."""
    import numpy as np
    from astropy.io import fits

    header = fits.getheader(mean)
    beam, lines, good = header["BMAJ"], [f"{100 * header['MISSING']:g} % of the bands are missing"], 0
    for name, ra, dec, flux in sky:
        at = np.array([ra, dec])
        scale = np.array([np.cos(np.deg2rad(at[1])), 1.0])
        distance, bright = min(
            ((float(np.hypot(*((np.array(one[:2]) - at) * scale))), one[2]) for one in found),
            default=(np.inf, np.nan),
        )
        error = bright / flux - 1
        good += distance < beam / 5 and abs(error) < 0.02
        lines.append(
            f"{name}: {flux:g} Jy, found {bright:.3f} Jy ({error:+.2%}), {distance / beam:.1%} of the beam away"
        )
    return "\n".join([*lines, f"{good} of {len(sky)} sources are right, {len(found)} were found", ""])


@app(outputs=("picture",))
def draw(mean: str, found: list[list[float]], picture: str) -> None:
    """Draw the mean image with a circle around each source."""
    import matplotlib as mpl

    mpl.use("Agg")
    import numpy as np
    from astropy.io import fits
    from astropy.wcs import WCS
    from matplotlib import pyplot as plt

    with fits.open(mean) as opened:
        header, image = opened[0].header, opened[0].data[0]
    sky = WCS(header, naxis=2)
    figure = plt.figure(figsize=(7.2, 6), layout="constrained")
    axes = figure.add_subplot(projection=sky)
    shown = axes.imshow(np.arcsinh(image / 0.02), origin="lower", cmap="magma")
    for ra, dec, flux in found:
        x, y = sky.all_world2pix(ra, dec, 0)
        axes.add_patch(plt.Circle((x, y), 9, fill=False, color="white"))
        axes.text(x + 12, y, f"{flux:.2f} Jy", color="white", va="center")
    bar = figure.colorbar(shown, ticks=[float(np.arcsinh(level / 0.02)) for level in (0, 0.05, 0.2, 1, 3, 10)])
    bar.ax.set_yticklabels(["0", "0.05", "0.2", "1", "3", "10"])
    bar.set_label("Jy/beam")
    there = round(header["NBANDS"] * (1 - header["MISSING"]))
    axes.set(xlabel="Right ascension", ylabel="Declination", title=f"Mean of {there} of {header['NBANDS']} bands")
    figure.savefig(picture, format="png", dpi=100)


def radio() -> Graph:
    """Return the graph."""
    description = "Flags, calibrates and images a simulated radio observation of eight bands, and finds its sources."
    with Graph("radio", description) as graph:
        broken = graph.parameter("broken", 5, description="Number of the band whose disk fails; -1 for none")
        noise = graph.parameter("noise", 1.0, minimum=0, description="Noise of one sample, in Jy")
        sky = make_sky().renamed("Sky")
        plan = plan_observations(sky, BANDS, TIMES, broken).renamed("Plan")
        with graph.each(plan, copies=BANDS, name="Bands") as band:
            with graph.each(band, copies=TIMES, name="Times") as part:
                model, strategy = write_settings(part)
                model.save("settings/{auto}.skymodel").set(persist=False).renamed("Sky model")
                strategy.save("settings/{auto}.lua").set(persist=False).renamed("Strategy")
                raw = observe(part, noise).store("Directory", persist=False).renamed("Raw")
                flagged = graph.command(FLAG, name="Flag", outputs="flagged", raw=raw, strategy=strategy)
                flagged.store("Directory", persist=False).renamed("Flagged")
                gains = graph.command(SOLVE, name="Solve", outputs="gains", flagged=flagged, model=model)
                gains.save("gains-{auto}.h5", encoding="path").set(persist=False).renamed("Gains")
                calibrated = graph.command(APPLY, name="Apply", outputs="calibrated", flagged=flagged, gains=gains)
                calibrated.store("Directory", persist=False).renamed("Calibrated")
            image = graph.command(IMAGE, name="Image", outputs="image", calibrated=calibrated)
            image.save("bands/{auto}.fits", encoding="path").renamed("Band image")
        cube = make_cube(image, BANDS).save("cube.fits").renamed("Cube")
        mean = average(cube).save("mean.fits").renamed("Mean image")
        found = find_sources(mean).renamed("Sources")
        write_catalogue(found).save("catalogue.csv").renamed("Catalogue")
        compare(found, sky, mean).save("report.txt").renamed("Report")
        draw(mean, found).save("sky.png").renamed("Picture")
    return graph


if __name__ == "__main__":
    drawn = radio()
    drawn.save(HERE / "radio.graph")
    if "--draw" not in sys.argv:
        print(drawn.run())
