// What the player adds to the page's own objects, for the type checker.

declare module "*/style.js" {
  export const STYLE: string;
}

interface Document {
  /** Whether the listeners of the whole page are there. */
  gradtrace?: boolean;
  /** The newest model of each key, for every copy of the module. */
  gradtraceModels?: Map<string, any>;
  /** Mounts the players that came since. */
  gradtracePlayers?: () => void;
}

interface Element {
  readonly dataset: DOMStringMap;
  /** The player that was built in this place. */
  gradtrace?: any;
  /** Of a details element. */
  open: boolean;
}

interface EventTarget {
  tagName?: string;
  getAttribute?(name: string): string | null;
}
