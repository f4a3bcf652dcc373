/** The page's nonce, with which CodeMirror may add its style sheet: `EditorView.cspNonce.of(NONCE)`. */
export const NONCE = document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content ?? "";
