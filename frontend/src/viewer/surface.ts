/** What both renderers can do on command. */
export interface GraphSurface {
  fit(): void;
  /** Bring a box into view. */
  reveal(place: number): void;
  zoomBy(factor: number): void;
  panBy(dx: number, dy: number): void;
}
