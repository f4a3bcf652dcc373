/** The CSP nonce of the page, for CodeMirror's style sheet: `EditorView.cspNonce.of(NONCE)`. */
export const NONCE = document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content ?? "";
