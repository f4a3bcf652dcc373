import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

const OUT = "../src/toolcrib/api/web";

/** Writes each asset compressed beside itself, once, so that the server need not do it for every visitor. */
function precompressed(): Plugin {
  return {
    name: "precompressed",
    apply: "build",
    closeBundle() {
      const folder = join(import.meta.dirname, OUT, "assets");
      for (const name of readdirSync(folder)) {
        const path = join(folder, name);
        writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: 9 }));
      }
    },
  };
}

export default defineConfig({
  plugins: [react(), tailwindcss(), precompressed()],
  build: {
    outDir: OUT,
    emptyOutDir: true,
    // Inlined files would need `data:` in the policy of the page.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    manifest: true,
    rolldownOptions: {
      output: {
        codeSplitting: {
          // Small modules that several screens need are one file: dozens of requests would hold up a first load.
          groups: [{ name: "common", test: /web[\\/]src[\\/]|lucide-react/, minShareCount: 3, maxModuleSize: 6_000 }],
        },
      },
    },
  },
  server: { proxy: { "/api": { target: "http://127.0.0.1:3000", ws: true } } },
  test: { environment: "node", include: ["src/**/*.test.ts"] },
});
