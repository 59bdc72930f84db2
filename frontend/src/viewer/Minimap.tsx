import { useEffect, useMemo, useRef } from "react";
import { colour, useTheme } from "../app/theme";
import { OP_KINDS } from "../graph/opKind";
import { OPEN, type Scene } from "../layout/scene";
import type { Camera, Size } from "./camera";
import type { BoxText } from "./draw";

interface Props {
  scene: Scene;
  texts: BoxText[];
  camera: Camera;
  view: Size;
  onLook: (camera: Camera) => void;
}

const MOST = { width: 200, height: 136 };

/** The whole scene in a corner, with the part in view as a frame; press or drag to go there. */
export function Minimap({ scene, texts, camera, view, onLook }: Props) {
  const theme = useTheme();
  const canvas = useRef<HTMLCanvasElement>(null);
  const scale = Math.min(MOST.width / Math.max(1, scene.totalWidth), MOST.height / Math.max(1, scene.totalHeight));
  const width = Math.max(48, Math.round(scene.totalWidth * scale));
  const height = Math.max(32, Math.round(scene.totalHeight * scale));
  const picture = useMemo(() => {
    const ratio = window.devicePixelRatio || 1;
    const image = document.createElement("canvas");
    image.width = Math.round(width * ratio);
    image.height = Math.round(height * ratio);
    const context = image.getContext("2d")!;
    context.scale(ratio * scale, ratio * scale);
    const colours = OP_KINDS.map((kind) => colour(`op-${kind}`));
    const least = 1 / (scale * ratio);
    for (let place = 0; place < scene.count; place++) {
      if (scene.state[place] === OPEN) continue;
      context.fillStyle = colours[texts[place]!.kind]!;
      context.fillRect(scene.x[place]!, scene.y[place]!, Math.max(least, scene.width[place]!), Math.max(least, scene.height[place]!));
    }
    return image;
    // `theme` is read by the colours inside.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [scene, texts, width, height, scale, theme]);

  useEffect(() => {
    const element = canvas.current!;
    const context = element.getContext("2d")!;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, element.width, element.height);
    context.drawImage(picture, 0, 0);
    const ratio = element.width / width;
    context.scale(ratio, ratio);
    context.strokeStyle = colour("focus");
    context.lineWidth = 1.5;
    context.strokeRect(
      camera.x * scale,
      camera.y * scale,
      Math.max(3, (view.width / camera.zoom) * scale),
      Math.max(3, (view.height / camera.zoom) * scale),
    );
  }, [picture, camera, view, scale, width]);

  const go = (event: React.PointerEvent<HTMLCanvasElement>) => {
    if (event.buttons !== 1) return;
    const box = event.currentTarget.getBoundingClientRect();
    const x = (event.clientX - box.left) / scale;
    const y = (event.clientY - box.top) / scale;
    onLook({ ...camera, x: x - view.width / camera.zoom / 2, y: y - view.height / camera.zoom / 2 });
  };

  return (
    <canvas
      ref={canvas}
      className="minimap"
      role="img"
      aria-label="Minimap"
      width={picture.width}
      height={picture.height}
      style={{ width, height }}
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        go(event);
      }}
      onPointerMove={go}
    />
  );
}
