#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what Pillow and transformers make of pictures: record_pictures.py FOLDER [preprocessor_config.json ..]. FOLDER has
.png and .jpg files, or gets small ones of every kind. FOLDER/cases.json then has the SHA-256 of the bytes of
convert("RGB") of each, and, by each configuration (without one: those below), values of transformers' processor on
Pillow. `SPILLWAY_PICTURES=FOLDER build/tests/picture_picture_test` compares: bytes exactly, values within 1e-3."""
import hashlib, json, pathlib, random, sys, tempfile
import numpy, PIL.Image
from transformers import AutoImageProcessor

MOST = 200  # values of a picture and a configuration
folder = pathlib.Path(sys.argv[1])
HALVES = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
CONFIGS = [
    {"image_processor_type": "ViTImageProcessor", "size": {"height": 12, "width": 20}, "resample": 2} | HALVES,
    {"image_processor_type": "ViTImageProcessor", "size": {"height": 61, "width": 43}, "resample": 3} | HALVES,
    {"image_processor_type": "ViTImageProcessor", "size": {"height": 17, "width": 90}, "resample": 0} | HALVES,
    {"feature_extractor_type": "ViTFeatureExtractor", "size": 16, "do_normalize": False},
    {"image_processor_type": "ViTImageProcessorFast", "size": [10, 14], "do_rescale": False,
     "image_mean": [120, 110, 100], "image_std": [60, 50, 40]},
    {"feature_extractor_type": "DeiTFeatureExtractor", "size": 20, "crop_size": 15, "resample": 3,
     "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]},
    {"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 18},
     "crop_size": {"height": 13, "width": 16}},
    {"image_processor_type": "CLIPImageProcessor", "size": 9, "crop_size": {"height": 20, "width": 17},
     "do_convert_rgb": True},
    {"image_processor_type": "ViTImageProcessor", "do_resize": False, "do_center_crop": True, "crop_size": 30,
     "rescale_factor": 0.00784313725490196} | HALVES,
]

def make() -> None:
    """A picture of each kind: noise on a slope."""
    draw = random.Random(0)
    slope = numpy.add.outer(numpy.arange(23) * 5, numpy.arange(37) * 3)[..., None] + [0, 20, 40]
    noise = numpy.array([draw.randrange(60) for _ in range(23 * 37 * 3)]).reshape(23, 37, 3)
    rgb = PIL.Image.fromarray(((slope + noise) % 256).astype(numpy.uint8))
    gray, alpha = rgb.convert("L"), rgb.getchannel("B")
    kinds = {"rgb.png": rgb, "gray.png": gray, "bits.png": rgb.convert("1"), "palette.png": rgb.quantize(37),
             "palette4.png": rgb.quantize(11), "gray16.png": PIL.Image.fromarray(numpy.array(gray).astype(numpy.uint16) * 3)}
    for name, picture in kinds.items():
        picture.save(folder / name, **({"bits": 4} if name == "palette4.png" else {}))
    for name, mode, bands in (("gray_alpha.png", "LA", [gray, alpha]), ("rgb_alpha.png", "RGBA", [*rgb.split(), alpha])):
        PIL.Image.merge(mode, bands).save(folder / name)
    rgb.save(folder / "rgb_transparent.png", transparency=(40, 60, 80))
    for name, options in {"420.jpg": {"subsampling": 2}, "422.jpg": {"subsampling": 1}, "444.jpg": {"subsampling": 0},
                          "progressive.jpg": {"progressive": True}, "restarts.jpg": {"restart_marker_blocks": 2}}.items():
        rgb.save(folder / name, quality=80, **options)
    gray.save(folder / "gray.jpg")
    rgb.convert("CMYK").save(folder / "cmyk.jpg")
    inks = (folder / "cmyk.jpg").read_bytes()  # Pillow writes no YCCK: what says that it is one is the last byte of this
    (folder / "ycck.jpg").write_bytes(inks.replace(b"Adobe\x00d\x00\x00\x00\x00\x00", b"Adobe\x00d\x00\x00\x00\x00\x02"))
    turned = PIL.Image.Exif()
    turned[0x0112] = 6  # Orientation: to be turned by a quarter
    rgb.save(folder / "turned.jpg", exif=turned)
    rgb.resize((1, 1)).save(folder / "one.png")
    rgb.resize((64, 5)).save(folder / "wide.jpeg")
    rgb.resize((15, 90)).save(folder / "tall.jpeg")  # whose rows Pillow resizes first

def pictures() -> list:
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in (".png", ".jpg", ".jpeg"))

folder.mkdir(parents=True, exist_ok=True)
if not pictures():
    make()
configs = [json.loads(pathlib.Path(name).read_text()) for name in sys.argv[2:]] or CONFIGS
cases = []
for path in pictures():
    rgb = PIL.Image.open(path).convert("RGB")
    rgb.info.pop("transparency", None)  # by which transformers would blend it onto white
    cases.append({"picture": path.name, "width": rgb.width, "height": rgb.height, "rgb": hashlib.sha256(rgb.tobytes()).hexdigest()})
    for config in configs if len(sys.argv) > 2 or path.name in ("rgb.png", "420.jpg", "wide.jpeg", "tall.jpeg") else []:
        with tempfile.TemporaryDirectory() as scratch:
            pathlib.Path(scratch, "preprocessor_config.json").write_text(json.dumps(config))
            pathlib.Path(scratch, "config.json").write_text('{"model_type": "vit"}')
            values = AutoImageProcessor.from_pretrained(scratch, backend="pil")(rgb)["pixel_values"][0]
        step = -(-values.size // MOST)
        cases.append({"picture": path.name, "config": config, "height": values.shape[1], "width": values.shape[2], "step": step,
                      "values": [round(float(v), 6) for v in values.flatten()[::step]]})
lines = ",\n".join(json.dumps(case) for case in cases)
(folder / "cases.json").write_text(f"[\n{lines}\n]\n")
print(f"{folder}/cases.json: {len(cases)} cases")
