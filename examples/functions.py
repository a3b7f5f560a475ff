"""The functions that run inside the example graphs.

The source of each function is copied into a graph by itself, so it imports all that it uses, and its annotations are
builtins.
"""
# ruff: noqa: PLC0415 - a function in a graph is a module of its own


def make_table() -> object:
    """Return three rows of four numbers."""
    import numpy as np

    return np.arange(12).reshape(3, 4)


def flatten(input: object) -> object:  # noqa: A002 - the name of the port
    """Return a row as a one-dimensional array. The pieces of a scatter have all axes of its input."""
    return input.ravel()


def square(input: object) -> object:  # noqa: A002
    """Return the square of each number."""
    return input**2


def total(input: object) -> float:  # noqa: A002
    """Return the sum of all numbers in a list of arrays."""
    import numpy as np

    return float(np.sum(input))


def report_sums(input: object) -> str:  # noqa: A002
    """Return the row sums and their total as text."""
    lines = [f"row {number}: {value:g}" for number, value in enumerate(input)]
    return "\n".join([*lines, f"total: {sum(input):g}", ""])


def observe() -> object:
    """Return samples of three antennas in four channels: ten times the antenna plus the channel."""
    import numpy as np

    return 10 * np.arange(3)[:, None] + np.arange(4)


def stack(input: object) -> object:  # noqa: A002
    """Return a list of arrays as one array with one more axis."""
    import numpy as np

    return np.squeeze(np.stack(input))


def first_guess() -> object:
    """Return numbers, and the numbers themselves as the first estimates of their roots."""
    import numpy as np

    numbers = np.array([2.0, 3.0, 5.0, 7.0, 11.0])
    return {"numbers": numbers, "roots": numbers.copy(), "change": 1.0, "steps": 0}


def improve(input: object) -> object:  # noqa: A002
    """Return the roots after one more step of Heron's method."""
    import numpy as np

    roots = (input["roots"] + input["numbers"] / input["roots"]) / 2
    change = float(np.max(np.abs(roots - input["roots"])))
    return {"numbers": input["numbers"], "roots": roots, "change": change, "steps": input["steps"] + 1}


def is_good(x: object) -> bool:
    """Return whether the last step changed no root by more than 1e-9."""
    return bool(x["change"] < 1e-9)


def report_roots(input: object) -> str:  # noqa: A002
    """Return the numbers and their roots as text."""
    pairs = zip(input["numbers"], input["roots"], strict=True)
    return f"after {input['steps']} steps\n" + "".join(f"{number:g} {root:.9f}\n" for number, root in pairs)


def make_plan() -> object:
    """Return the numbers of ten targets."""
    import numpy as np

    return np.arange(10)


def measure(input: object) -> float:  # noqa: A002
    """Return a measurement, which fails for targets 3 and 7."""
    target = int(input[0])
    if target in (3, 7):
        raise ValueError(f"target {target} is below the horizon")
    return 100.0 + target


def average_of_the_rest(input: object, planned: int) -> str:  # noqa: A002
    """Return the mean of the measurements, and the fraction that is missing, as text."""
    lost = 100 * (planned - len(input)) / planned
    return f"{len(input)} of {planned} measurements, {lost:g} % lost\nmean {sum(input) / len(input):.3f}\n"


def make_sky() -> object:
    """Return point sources: offset east and north in pixels of the image, and flux in jansky."""
    return [
        (-62, 38, 3.0),
        (-21, -55, 1.6),
        (14, 22, 2.4),
        (47, -18, 1.2),
        (70, 66, 2.0),
        (-78, -80, 1.0),
        (5, 81, 0.8),
    ]


def plan_observations(sky: object, channels: int = 8) -> object:
    """Return the frequency in hertz and the sky of each channel."""
    import numpy as np

    return [(float(frequency), sky) for frequency in np.linspace(1.0e9, 1.4e9, channels)]


def simulate(observations: object) -> object:
    """Return the visibilities that an array of 27 antennas in a Y would measure in six hours, with noise.

    Observations are frequencies in hertz with the sky, which is the same for all. The w term is left out, because the
    field is small. The rows of the result are u and v in wavelengths, and the visibilities, each of shape
    (channels * times * baselines,).
    """
    import numpy as np

    frequencies, sky = [frequency for frequency, _ in observations], observations[0][1]
    cell = np.deg2rad(5.0 / 3600)  # of the image, in radians
    arms = np.deg2rad([5, 125, 245])
    radii = 1500 * (np.arange(1, 10) / 9) ** 1.6
    east = np.concatenate([radii * np.sin(arm) for arm in arms])
    north = np.concatenate([radii * np.cos(arm) for arm in arms])
    first, second = np.triu_indices(len(east), 1)
    dx, dy = east[second] - east[first], north[second] - north[first]
    hours = np.deg2rad(15 * np.linspace(-3, 3, 48))[:, None]
    declination = np.deg2rad(50)
    u = dx * np.cos(hours) - dy * np.sin(np.deg2rad(34)) * np.sin(hours)
    v = np.sin(declination) * (dx * np.sin(hours) + dy * np.sin(np.deg2rad(34)) * np.cos(hours))
    v = v + np.cos(declination) * dy * np.cos(np.deg2rad(34))
    wave = np.asarray(frequencies)[:, None, None] / 299_792_458.0
    u, v = (wave * u).ravel(), (wave * v).ravel()
    visibilities = sum(flux * np.exp(-2j * np.pi * cell * (u * right + v * up)) for right, up, flux in sky)
    noise = np.random.default_rng(int(frequencies[0]) % 2**32).normal(scale=0.5, size=(2, len(u)))
    return np.stack([u, v, visibilities + noise[0] + 1j * noise[1]])


def grid_and_fft(visibilities: object) -> object:
    """Return the dirty image and the point spread function with natural weights, shape (2, 256, 256)."""
    import numpy as np

    size, cell = 256, np.deg2rad(5.0 / 3600)
    u, v = visibilities[0].real, visibilities[1].real
    column, row = (np.rint(axis * size * cell).astype(int) for axis in (u, v))
    planes = np.zeros((2, size, size), dtype=complex)
    for plane, values in zip(planes, (visibilities[2], np.ones(len(u))), strict=True):
        np.add.at(plane, (row % size, column % size), values)
        np.add.at(plane, (-row % size, -column % size), np.conj(values))
    images = np.fft.fftshift(np.fft.ifft2(planes), axes=(1, 2)).real
    taper = np.sinc(
        (np.arange(size) - size // 2) / size
    )  # the attenuation of the image by gridding to the nearest cell
    images[0] /= taper[:, None] * taper
    return images / images[1].max()


def make_cube(images: object) -> object:
    """Return the images of all channels as one cube, shape (channels, 2, 256, 256)."""
    import numpy as np

    return np.stack(images).astype(np.float32)


def find_sources(cube: object) -> object:
    """Clean the mean over all channels (Hogbom 1974, A&AS 15, 417) and group its components into sources."""
    import numpy as np

    residual, beam = cube.mean(axis=0).astype(float)
    size = len(residual)
    centre = size // 2
    model = np.zeros_like(residual)
    for _ in range(3000):
        row, column = np.unravel_index(np.argmax(residual), residual.shape)
        peak = residual[row, column]
        if peak < 0.05:
            break
        model[row, column] += 0.1 * peak
        residual -= 0.1 * peak * np.roll(beam, (row - centre, column - centre), axis=(0, 1))
    sources, left = [], model.copy()
    while left.max() > 0.2:
        row, column = np.unravel_index(np.argmax(left), left.shape)
        around = (slice(max(0, row - 3), row + 4), slice(max(0, column - 3), column + 4))
        rows, columns = np.mgrid[around]
        flux = left[around].sum()
        north, east = ((left[around] * axis).sum() / flux - centre for axis in (rows, columns))
        sources.append((float(east), float(north), float(flux)))
        left[around] = 0
    return {"sources": sources, "model": model, "residual": residual}


def compare(found: object, sky: object) -> str:
    """Return a catalogue of the found and the simulated sources. Fail if a source has another position or flux."""
    lines = ["  east  north   flux    true east  north   flux"]
    for right, up, flux in sky:
        east, north, measured = min(
            found["sources"], key=lambda source: (source[0] - right) ** 2 + (source[1] - up) ** 2
        )
        if abs(east - right) > 1 or abs(north - up) > 1 or abs(measured - flux) > 0.25 * flux:
            raise ValueError(
                f"the source at ({right}, {up}) was found at ({east:.1f}, {north:.1f}) with {measured:.2f} Jy"
            )
        lines.append(f"{east:6.1f} {north:6.1f} {measured:6.2f}       {right:6d} {up:6d} {flux:6.2f}")
    if len(found["sources"]) != len(sky):
        raise ValueError(f"{len(found['sources'])} sources were found, there are {len(sky)}")
    return "\n".join([*lines, f"all {len(sky)} sources found", ""])


def draw_picture(cube: object, found: object) -> bytes:  # noqa: C901, PLR0915 - the code of a node is one function
    """Return the dirty image and the cleaned one as a PNG, with circles around the sources that were found.

    North is up and east to the left, as astronomers draw the sky. Without Pillow, the axes are left out.
    """
    import io
    import struct
    import zlib

    import numpy as np

    def level(value: object) -> object:
        """Return where a brightness in Jy/beam is on the colour scale, from 0 to 1."""
        return np.clip(np.arcsinh(np.clip(value, -0.1, None) * 12 + 1.2) / np.arcsinh(12 * 3.0 + 1.2), 0, 1)

    def colours(place: object) -> object:
        stops = np.array(
            [[4, 5, 20], [48, 12, 84], [122, 28, 109], [190, 55, 82], [240, 110, 40], [252, 190, 60], [252, 255, 200]]
        )
        places = np.linspace(0, 1, len(stops))
        return np.stack([np.interp(place, places, stops[:, colour]) for colour in range(3)], axis=-1)

    dirty, beam = cube.mean(axis=0)
    size, zoom, cell = len(dirty), 3, 5.0 / 60  # cells of 5 arcsec, in arcmin
    rows, columns = np.mgrid[:size, :size] - size // 2
    width = np.sqrt((beam > 0.5).sum() / np.pi)
    restoring = np.fft.rfft2(np.fft.ifftshift(np.exp(-np.log(2) * (rows**2 + columns**2) / width**2)))
    clean = np.fft.irfft2(np.fft.rfft2(found["model"]) * restoring, s=dirty.shape) + found["residual"]
    panels = []
    for image in (dirty, clean):
        smooth = np.repeat(np.repeat(image, zoom, axis=0), zoom, axis=1)
        for axis in (0, 1):
            for _ in range(2):
                smooth = (np.roll(smooth, 1, axis) + smooth + np.roll(smooth, -1, axis)) / 3
        panels.append(colours(level(smooth)))
    y, x = np.mgrid[: size * zoom, : size * zoom]
    for east, north, _ in found["sources"]:
        distance = np.hypot(x - (east + size / 2 + 0.5) * zoom, y - (north + size / 2 + 0.5) * zoom)
        ring = np.clip(1.6 - np.abs(distance - 8 * zoom), 0, 1)[..., None]
        panels[1] = panels[1] * (1 - ring) + ring * np.array([120, 230, 255])
    side, left, top, between, bar = size * zoom, 90, 50, 100, 24
    picture = np.full((top + side + 80, left + 2 * side + between + 40 + bar + 90, 3), 255, dtype=np.uint8)
    starts = (left, left + side + between)
    for start, panel in zip(starts, panels, strict=True):
        picture[top : top + side, start : start + side] = panel[::-1, ::-1]
    scale = starts[1] + side + 40
    picture[top : top + side, scale : scale + bar] = colours(np.linspace(1, 0, side))[:, None]
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        lines = b"".join(b"\0" + line.tobytes() for line in picture)
        head = struct.pack(">IIBBBBB", picture.shape[1], picture.shape[0], 8, 2, 0, 0, 0)
        chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(lines, 6)), (b"IEND", b""))
        parts = (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
            for kind, body in chunks
        )
        return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
    drawn = Image.fromarray(picture)
    pen, font, ink = ImageDraw.Draw(drawn), ImageFont.load_default(20), (0, 0, 0)
    for start, title in zip(starts, ("Dirty image", "Cleaned image, with the sources found"), strict=True):
        pen.rectangle((start - 1, top - 1, start + side, top + side), outline=ink)
        pen.text((start + side / 2, top - 14), title, ink, font, anchor="ms")
        for arcmin in (-10, -5, 0, 5, 10):
            shift = (arcmin / cell - 0.5) * zoom
            across, down = start + side / 2 - shift, top + side / 2 - shift
            pen.line((across, top + side, across, top + side + 8), ink)
            pen.text((across, top + side + 12), f"{arcmin}", ink, font, anchor="mt")
            pen.line((start - 8, down, start, down), ink)
            pen.text((start - 12, down), f"{arcmin}", ink, font, anchor="rm")
        pen.text((start + side / 2, top + side + 44), "RA offset (arcmin)", ink, font, anchor="mt")
        label = Image.new("RGB", (220, 28), (255, 255, 255))
        ImageDraw.Draw(label).text((110, 14), "Dec offset (arcmin)", ink, font, anchor="mm")
        drawn.paste(label.rotate(90, expand=True), (start - 84, top + side // 2 - 110))
    pen.rectangle((scale - 1, top - 1, scale + bar, top + side), outline=ink)
    pen.text((scale + bar / 2, top - 14), "Jy/beam", ink, font, anchor="ms")
    for brightness in (0, 0.1, 0.3, 1, 3):
        down = top + side * (1 - float(level(brightness)))
        pen.line((scale + bar, down, scale + bar + 8, down), ink)
        pen.text((scale + bar + 12, down), f"{brightness:g}", ink, font, anchor="lm")
    stream = io.BytesIO()
    drawn.save(stream, "PNG")
    return stream.getvalue()


def find_tone(samples: str) -> str:
    """Return the strongest frequency in a table of numbered samples, as text."""
    import numpy as np

    values = np.array([float(line.split()[1]) for line in samples.splitlines()])
    power = np.abs(np.fft.rfft(values - values.mean())) ** 2
    strongest = int(np.argmax(power))
    share = power[strongest] / power.sum()
    return f"{len(values)} samples\ntone at {strongest / len(values):.4f} cycles a sample, {share:.0%} of the power\n"
