/** Where the canvas looks: scene point `(x, y)` is at the canvas's top left corner. */
export interface Camera {
  x: number;
  y: number;
  zoom: number;
}

export const MIN_ZOOM = 0.004;
export const MAX_ZOOM = 3;

export interface Size {
  width: number;
  height: number;
}

/** Show a rectangle as large as it fits, in the middle, never above the given zoom. */
export function fit(left: number, top: number, size: Size, view: Size, most = 1, margin = 32): Camera {
  const zoom = clamp(
    Math.min((view.width - 2 * margin) / Math.max(1, size.width), (view.height - 2 * margin) / Math.max(1, size.height)),
    MIN_ZOOM,
    most,
  );
  return {
    x: left + size.width / 2 - view.width / zoom / 2,
    y: top + size.height / 2 - view.height / zoom / 2,
    zoom,
  };
}

/** Zoom so that the scene point under the given canvas point stays there. */
export function zoomAt(camera: Camera, factor: number, px: number, py: number): Camera {
  const zoom = clamp(camera.zoom * factor, MIN_ZOOM, MAX_ZOOM);
  return { x: camera.x + px / camera.zoom - px / zoom, y: camera.y + py / camera.zoom - py / zoom, zoom };
}

/** Pan by canvas pixels. */
export function pan(camera: Camera, dx: number, dy: number): Camera {
  return { ...camera, x: camera.x + dx / camera.zoom, y: camera.y + dy / camera.zoom };
}

/** Put a scene point into the middle, at least at the given zoom. */
export function centreOn(camera: Camera, x: number, y: number, view: Size, least: number): Camera {
  const zoom = Math.max(camera.zoom, least);
  return { x: x - view.width / zoom / 2, y: y - view.height / zoom / 2, zoom };
}

function clamp(value: number, least: number, most: number): number {
  return Math.min(most, Math.max(least, value));
}
