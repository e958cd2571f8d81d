// One file: a page from disk may neither load modules nor start workers from other files, so everything goes inside it.
import { defineConfig } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";

export default defineConfig({
  base: "./",
  plugins: [viteSingleFile()],
  worker: { format: "iife" },
  build: {
    target: "es2022",
    // Fonts and the simulator, too.
    assetsInlineLimit: 100_000_000,
    chunkSizeWarningLimit: 4_000,
  },
});
