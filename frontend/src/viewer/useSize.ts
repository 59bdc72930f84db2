import { useLayoutEffect, useState, type RefObject } from "react";
import type { Size } from "./camera";

/** The size of an element in CSS pixels, followed. */
export function useSize(element: RefObject<HTMLElement | null>): Size {
  const [size, setSize] = useState<Size>({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const node = element.current;
    if (!node) return;
    const observer = new ResizeObserver(([entry]) => {
      if (!entry) return;
      const { width, height } = entry.contentRect;
      setSize((before) => (before.width === width && before.height === height ? before : { width, height }));
    });
    observer.observe(node);
    return () => observer.disconnect();
  }, [element]);
  return size;
}
