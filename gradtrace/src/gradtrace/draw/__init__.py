"""From a scene to a drawing: fold a graph of any size, lay it out, and write it as SVG."""
