// What `report.html` runs: the plans that the page carries, in the interactive front.

import { FrontView } from "./front.js";

const app = document.getElementById("app");
app.hidden = false;
new FrontView(app, JSON.parse(document.getElementById("data").textContent));
