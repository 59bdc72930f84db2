import { useCallback, useEffect, useImperativeHandle, useMemo, useRef, useState, type Ref } from "react";
import { useTheme } from "../app/theme";
import type { GraphModel } from "../graph/document";
import { PLAIN, type Scene } from "../layout/scene";
import { centreOn, fit, pan, zoomAt, type Camera } from "./camera";
import { boxTexts, drawScene, onToggle } from "./draw";
import { Minimap } from "./Minimap";
import { SceneIndex } from "./sceneIndex";
import type { GraphSurface } from "./surface";
import { useSize } from "./useSize";

interface Props {
  model: GraphModel;
  scene: Scene;
  selected: number;
  hits: ReadonlySet<number>;
  onSelect: (place: number) => void;
  onToggle: (place: number) => void;
  surface: Ref<GraphSurface>;
  label: string;
}

/** Draws scenes of any size on a canvas: culled by an R-tree, in three levels of detail. */
export function CanvasViewer({ model, scene, selected, hits, onSelect, onToggle: toggle, surface, label }: Props) {
  const area = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const size = useSize(area);
  const theme = useTheme();
  const index = useMemo(() => new SceneIndex(scene), [scene]);
  const texts = useMemo(() => boxTexts(model, scene), [model, scene]);
  const camera = useRef<Camera | null>(null);
  const anchor = useRef<{ scene: Scene; id: number } | null>(null);
  const hovered = useRef(-1);
  const frame = useRef(0);
  const [looking, setLooking] = useState<Camera | null>(null);

  const paint = useCallback(() => {
    frame.current = 0;
    const context = canvas.current?.getContext("2d");
    if (!context || !camera.current || size.width === 0) return;
    drawScene(context, index, texts, camera.current, size, { selected, hovered: hovered.current, hits });
    setLooking(camera.current);
    // `theme` is read by the colours inside.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [index, texts, size, selected, hits, theme]);

  const request = useCallback(() => {
    if (frame.current === 0) frame.current = requestAnimationFrame(paint);
  }, [paint]);

  const look = useCallback(
    (next: Camera) => {
      camera.current = next;
      request();
    },
    [request],
  );

  useEffect(() => {
    if (size.width === 0) return;
    const ratio = window.devicePixelRatio || 1;
    const element = canvas.current!;
    const width = Math.round(size.width * ratio);
    const height = Math.round(size.height * ratio);
    if (element.width !== width || element.height !== height) {
      element.width = width;
      element.height = height;
    }
    camera.current ??= fit(0, 0, { width: scene.totalWidth, height: scene.totalHeight }, size);
    // A box that was opened or closed stays where it was on the screen.
    const held = anchor.current;
    if (held && held.scene !== scene) {
      const before = held.scene.placeOf[held.id]!;
      const after = scene.placeOf[held.id]!;
      if (before >= 0 && after >= 0) {
        camera.current = {
          ...camera.current,
          x: camera.current.x + scene.x[after]! - held.scene.x[before]!,
          y: camera.current.y + scene.y[after]! - held.scene.y[before]!,
        };
      }
      anchor.current = null;
    }
    paint();
    return () => {
      cancelAnimationFrame(frame.current);
      frame.current = 0;
    };
  }, [paint, scene, size]);

  useImperativeHandle(
    surface,
    () => ({
      fit: () => look(fit(0, 0, { width: scene.totalWidth, height: scene.totalHeight }, size)),
      reveal: (place) => {
        if (!camera.current) return;
        const x = scene.x[place]! + scene.width[place]! / 2;
        const y = scene.y[place]! + Math.min(scene.height[place]!, 400) / 2;
        look(centreOn(camera.current, x, y, size, 0.6));
      },
      zoomBy: (factor) => camera.current && look(zoomAt(camera.current, factor, size.width / 2, size.height / 2)),
      panBy: (dx, dy) => camera.current && look(pan(camera.current, dx, dy)),
    }),
    [look, scene, size],
  );

  const flip = useCallback(
    (place: number) => {
      if (scene.state[place] === PLAIN) return;
      anchor.current = { scene, id: scene.id[place]! };
      toggle(place);
    },
    [scene, toggle],
  );

  // React listens to wheel events passively; zooming must keep the page from scrolling.
  useEffect(() => {
    const element = canvas.current!;
    const onWheel = (event: WheelEvent) => {
      event.preventDefault();
      if (!camera.current) return;
      const box = element.getBoundingClientRect();
      const scale = event.deltaMode === 1 ? 30 : 1;
      if (event.shiftKey) look(pan(camera.current, event.deltaY * scale + event.deltaX * scale, 0));
      else look(zoomAt(camera.current, Math.exp(-event.deltaY * scale * 0.0016), event.clientX - box.left, event.clientY - box.top));
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  }, [look]);

  const drag = useRef<{ x: number; y: number; moved: boolean } | null>(null);
  const at = (event: React.MouseEvent): [number, number] => {
    const box = canvas.current!.getBoundingClientRect();
    const { x, y, zoom } = camera.current ?? { x: 0, y: 0, zoom: 1 };
    return [x + (event.clientX - box.left) / zoom, y + (event.clientY - box.top) / zoom];
  };

  return (
    <div className="canvas-area" ref={area}>
      <canvas
        ref={canvas}
        role="img"
        aria-label={label}
        onPointerDown={(event) => {
          if (event.button !== 0) return;
          event.currentTarget.setPointerCapture(event.pointerId);
          drag.current = { x: event.clientX, y: event.clientY, moved: false };
        }}
        onPointerMove={(event) => {
          const held = drag.current;
          if (held && camera.current) {
            const dx = held.x - event.clientX;
            const dy = held.y - event.clientY;
            if (!held.moved && Math.hypot(dx, dy) < 4) return;
            drag.current = { x: event.clientX, y: event.clientY, moved: true };
            look(pan(camera.current, dx, dy));
            return;
          }
          const place = index.pick(...at(event));
          if (place !== hovered.current) {
            hovered.current = place;
            event.currentTarget.style.cursor = place >= 0 ? "pointer" : "grab";
            request();
          }
        }}
        onPointerUp={(event) => {
          const moved = drag.current?.moved;
          drag.current = null;
          if (moved || event.button !== 0) return;
          const [x, y] = at(event);
          const place = index.pick(x, y);
          if (place >= 0 && onToggle(scene, place, x, y)) flip(place);
          else onSelect(place);
        }}
        onPointerCancel={() => (drag.current = null)}
        onPointerLeave={() => {
          hovered.current = -1;
          request();
        }}
        onDoubleClick={(event) => {
          const place = index.pick(...at(event));
          if (place >= 0) flip(place);
        }}
      />
      {looking && size.width > 480 && <Minimap scene={scene} texts={texts} camera={looking} view={size} onLook={look} />}
    </div>
  );
}
